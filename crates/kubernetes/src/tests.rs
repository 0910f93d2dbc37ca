mod capacity;
mod jobs;
mod plan;
mod pods;
mod scaling;
