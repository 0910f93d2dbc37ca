//! Enums of the state, each value with the word that stands for it in JSON.

/// Enums of numbered words. The first alternative of each stands for a field that is left out.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $number:literal: $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration, serde::Serialize,
            serde::Deserialize,
        )]
        pub enum $name { $($(#[$word_doc])* #[serde(rename = $text)] $word = $number,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// Its word.
            pub fn name(self) -> &'static str {
                match self { $(Self::$word => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}

words! {
    /// What there are lists and answers of.
    StateKind {
        /// Actors, living and lately dead.
        Actors = 1: "actors",
        /// Tasks, and the calls and constructors of actors.
        Tasks = 2: "tasks",
        /// The same by when they ran.
        Timeline = 3: "timeline",
        /// Nodes, living and lately dead.
        Nodes = 4: "nodes",
        /// Processes that run tasks or an actor, and drivers.
        Workers = 5: "workers",
        /// Jobs, submitted or connected.
        Jobs = 6: "jobs",
        /// Placement groups.
        PlacementGroups = 7: "placement_groups",
        /// References to objects.
        Objects = 8: "objects",
        /// Runtime environments in use.
        RuntimeEnvs = 9: "runtime_envs",
        /// Why one thing waits: its identifier is the value of the only filter.
        Explain = 10: "explain",
        /// Where the threads of processes are.
        Stacks = 11: "stacks",
    }

    /// What a profile measures.
    ProfileKind {
        /// The time that threads compute for.
        Cpu = 1: "cpu",
        /// The time that threads are somewhere, whether they compute or wait.
        Wall = 2: "wall",
        /// The memory that is allocated meanwhile and not freed.
        Memory = 3: "memory",
    }

    /// What an entry of the chronicle is about.
    ChronicleKind {
        /// A device, and who holds it.
        Device = 1: "device",
        /// A node.
        Node = 2: "node",
        /// A job, connected or submitted.
        Job = 3: "job",
        /// An actor.
        Actor = 4: "actor",
        /// A placement group.
        PlacementGroup = 5: "placement_group",
        /// A process that runs tasks or an actor.
        Worker = 6: "worker",
        /// The autoscaler, and the replicas that it brings.
        Autoscaler = 7: "autoscaler",
        /// The head.
        Head = 8: "head",
        /// A training run.
        Train = 9: "train",
    }

    /// What happened, in the chronicle.
    ChronicleEvent {
        /// The head began, with nothing from before.
        HeadStarted = 1: "head_started",
        /// A head went on with what the last one had written down.
        HeadCameBack = 2: "head_came_back",
        /// A part of a device was granted, or the grant changed.
        DeviceGranted = 3: "device_granted",
        /// Its holder ends or is dead; it is not free before its device has forgotten the dead.
        DeviceReturning = 4: "device_returning",
        /// It was given back.
        DeviceFree = 5: "device_free",
        /// A device is given to nobody, for a reason.
        DeviceOutOfService = 6: "device_out_of_service",
        /// It is given to people again.
        DeviceInService = 7: "device_in_service",
        /// It was found ill, or drained by hand.
        DeviceIll = 8: "device_ill",
        /// Its driver says nothing against it any more.
        DeviceWell = 9: "device_well",
        /// There is something to be known of it.
        DeviceNoted = 10: "device_noted",
        /// A node came.
        NodeJoined = 11: "node_joined",
        /// A node that served the last head came back.
        NodeReturned = 12: "node_returned",
        /// A node is gone.
        NodeLost = 13: "node_lost",
        /// A node is being emptied.
        NodeDraining = 14: "node_draining",
        /// It is not being emptied after all.
        NodeKept = 15: "node_kept",
        /// An actor waits for a node.
        ActorWaiting = 16: "actor_waiting",
        /// Its constructor is about to run.
        ActorStarting = 17: "actor_starting",
        /// It takes calls.
        ActorAlive = 18: "actor_alive",
        /// Its process died, and another one is made.
        ActorRestarting = 19: "actor_restarting",
        /// It takes no calls any more.
        ActorDead = 20: "actor_dead",
        /// A placement group waits for room.
        GroupPending = 21: "placement_group_pending",
        /// All its bundles are set aside.
        GroupCreated = 22: "placement_group_created",
        /// It lost nodes, and waits for others.
        GroupRescheduling = 23: "placement_group_rescheduling",
        /// It was given up.
        GroupRemoved = 24: "placement_group_removed",
        /// A driver connected.
        JobStarted = 25: "job_started",
        /// It is gone.
        JobEnded = 26: "job_ended",
        /// A job was submitted.
        SubmissionPending = 27: "submission_pending",
        /// Its entrypoint runs.
        SubmissionRunning = 28: "submission_running",
        /// It ended well.
        SubmissionSucceeded = 29: "submission_succeeded",
        /// It did not.
        SubmissionFailed = 30: "submission_failed",
        /// Somebody stopped it.
        SubmissionStopped = 31: "submission_stopped",
        /// A process ended that nobody wanted to end.
        WorkerDied = 32: "worker_died",
        /// An autoscaler says what it may bring.
        AutoscalerJoined = 33: "autoscaler_joined",
        /// It is gone.
        AutoscalerLeft = 34: "autoscaler_left",
        /// It cannot do what it is to do.
        AutoscalerTroubled = 35: "autoscaler_troubled",
        /// A replica of one of its groups is in another state.
        ReplicaChanged = 36: "replica_changed",
        /// There is no such replica any more.
        ReplicaGone = 37: "replica_gone",
        /// A training run reported numbers.
        TrainReported = 38: "train_reported",
        /// A device is kept in service although its node found it ill: too many would be missing.
        DeviceKept = 39: "device_kept",
    }

    /// How much an entry of the chronicle matters, in Ray's words.
    Severity {
        /// It is in the way of things.
        Info = 0: "INFO",
        /// It may matter.
        Warning = 1: "WARNING",
        /// Something failed.
        Error = 2: "ERROR",
    }

    /// How far an actor is.
    ActorPhase {
        /// It waits for a node.
        Waiting = 1: "waiting",
        /// Its constructor runs.
        Starting = 2: "starting",
        /// It takes calls.
        Alive = 3: "alive",
        /// Its process died, and another one is made.
        Restarting = 4: "restarting",
        /// It takes no calls any more.
        Dead = 5: "dead",
    }

    /// What a process does.
    WorkerDuty {
        /// It waits for the next task of its job.
        Idle = 1: "idle",
        /// It runs tasks.
        Task = 2: "task",
        /// It is an actor.
        Actor = 3: "actor",
        /// It is about to end.
        Ending = 4: "ending",
        /// It was forked ahead and belongs to no job yet.
        Spare = 5: "spare",
        /// It is a job's own program.
        Driver = 6: "driver",
    }

    /// How a process ended, in Ray's words.
    ExitKind {
        /// Nobody asked for it: it crashed, was killed from outside, or lost its node.
        SystemError = 1: "SYSTEM_ERROR",
        /// The cluster ended it, since it was not needed any more or somebody asked for its end.
        IntendedSystem = 2: "INTENDED_SYSTEM_EXIT",
        /// It left by itself.
        IntendedUser = 3: "INTENDED_USER_EXIT",
        /// Its actor's constructor raised.
        UserError = 4: "USER_ERROR",
        /// It was ended for want of memory.
        OutOfMemory = 5: "NODE_OUT_OF_MEMORY",
    }

    /// How far a placement group is, in Ray's words.
    GroupState {
        /// It waits for room.
        Pending = 1: "PENDING",
        /// Nodes were chosen, and have not all set its bundles aside.
        Prepared = 2: "PREPARED",
        /// All its bundles are set aside.
        Created = 3: "CREATED",
        /// It was given up.
        Removed = 4: "REMOVED",
        /// It lost nodes, and waits for others.
        Rescheduling = 5: "RESCHEDULING",
    }

    /// What the scheduler says of a placement group, in Ray's words.
    GroupScheduling {
        /// There is room for it now.
        Queued = 1: "QUEUED",
        /// There is no room now.
        NoResources = 2: "NO_RESOURCES",
        /// There never will be with the nodes that there are.
        Infeasible = 3: "INFEASIBLE",
        /// Nodes were chosen.
        Started = 4: "SCHEDULING_STARTED",
        /// All its bundles are set aside.
        Finished = 5: "FINISHED",
        /// It was given up.
        Removed = 6: "REMOVED",
    }

    /// Whether a device is given to anybody.
    DeviceService {
        /// It is.
        InService = 1: "in service",
        /// It is kept back, for a reason that its row has.
        Quarantined = 2: "quarantined",
    }

    /// Why a device is out of service, in a word.
    ServiceCause {
        /// Nobody tells, or it is in service.
        Unknown = 0: "unknown",
        /// A person drained it.
        Drained = 1: "drained",
        /// It is checked before it is given to people again.
        Check = 2: "check",
        /// It had an error, or did not pass its check.
        Error = 3: "error",
        /// Its driver needs something before it may be used again.
        Driver = 4: "driver",
        /// What ran on it failed, and succeeded elsewhere.
        Suspicion = 5: "suspicion",
        /// Its driver has lost it.
        Lost = 6: "lost",
        /// A dead process has memory of it, or nobody can tell.
        MemoryLeft = 7: "memory_left",
        /// A process that had it does not end, or what it started is there.
        ProcessLeft = 8: "process_left",
    }

    /// What is known of whether a device is well.
    HealthState {
        /// Nobody tells.
        Unknown = 0: "unknown",
        /// Its driver says nothing against it.
        Healthy = 1: "healthy",
        /// It is not, or a person drained it.
        Ill = 2: "ill",
    }

    /// How far a node keeps processes from devices that they were not granted, weakest first.
    IsolationMode {
        /// By variables.
        Variable = 1: "variable",
        /// By variables, and by a look at what they have open.
        Watch = 2: "watch",
        /// By the kernel where it can.
        Fence = 3: "fence",
        /// By the kernel, or requests are refused.
        Require = 4: "require",
    }

    /// What keeps a process from devices that it was not granted, weakest first.
    DeviceTier {
        /// Variables that list its devices, which it may ignore.
        Variable = 1: "variable",
        /// The kernel, by a ruleset of Landlock.
        Landlock = 2: "landlock",
        /// The kernel, by exceptions of a cgroup of version 1.
        Cgroup1 = 3: "cgroup1",
        /// The kernel, by a program of a cgroup of version 2.
        Cgroup = 4: "cgroup",
        /// Nothing, but what it has open is looked at.
        Watched = 5: "watched",
    }

    /// What keeps a process to the memory of a device that it asked for, weakest first.
    MemoryTier {
        /// Nothing: it is accounted for, and no more.
        None = 0: "none",
        /// Who is seen with more is ended.
        Watched = 1: "watched",
        /// The allocators of frameworks, in its own process.
        Framework = 2: "framework",
        /// A library that is loaded before CUDA's and counts what is allocated through it.
        Interposer = 3: "interposer",
        /// The MPS server whose client it is.
        Mps = 4: "mps",
        /// The kernel, for all processes of its control group.
        Dmem = 5: "dmem",
        /// The device itself: what was granted is a part of one that has no more memory.
        Mig = 6: "mig",
    }

    /// Who waits for resources.
    DemandKind {
        /// Tasks.
        Task = 1: "task",
        /// An actor.
        Actor = 2: "actor",
        /// A placement group.
        Group = 3: "placement group",
    }

    /// What a row of tasks is of, in Ray's words.
    TaskKind {
        /// A call of a function.
        Normal = 0: "NORMAL_TASK",
        /// A call of an actor's method.
        Actor = 1: "ACTOR_TASK",
        /// The making of an actor.
        ActorCreation = 2: "ACTOR_CREATION_TASK",
    }

    /// What a process that refers to objects is.
    ProcessRole {
        /// It has ended.
        Gone = 0: "gone",
        /// It runs tasks or an actor.
        Worker = 1: "worker",
        /// It is a job's own program.
        Driver = 2: "driver",
    }
}
