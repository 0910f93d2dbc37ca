"""Cases of RLlib: each builds an algorithm and returns what JSON can hold. They run on Oxiray and on Ray alike.

What learning comes to depends on random numbers and on which runner answers first: a case returns counts, and whether
something holds.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import ray
from ray import tune
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv

SMALL = DefaultModelConfig(fcnet_hiddens=[16])


class Corridor(gymnasium.Env):
    """Right is right: the end is so many steps away."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.length = (config or {}).get("length", 4)
        self.observation_space = gymnasium.spaces.Box(0.0, float(self.length), (1,), numpy.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.place = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.place = 0
        return numpy.array([0.0], numpy.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = max(0, self.place + (1 if action == 1 else -1))
        is_there = self.place >= self.length
        return numpy.array([self.place], numpy.float32), 1.0 if is_there else -0.1, is_there, False, {}


class Reaching(gymnasium.Env):
    """A number is to be said that is near to another."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), numpy.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), numpy.float32)
        self.goal, self.steps = 0.5, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return numpy.array([self.goal], numpy.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return numpy.array([self.goal], numpy.float32), -abs(float(action[0]) - self.goal), False, self.steps >= 10, {}


class Two(MultiAgentEnv):
    """Two agents that act at the same time, for five steps."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.agents = self.possible_agents = ["one", "other"]
        space = gymnasium.spaces.Box(0.0, 1.0, (2,), numpy.float32)
        self.observation_spaces = dict.fromkeys(self.agents, space)
        self.action_spaces = dict.fromkeys(self.agents, gymnasium.spaces.Discrete(2))
        self.steps = 0

    def seen(self) -> dict[str, Any]:
        return {agent: numpy.array([self.steps / 5, 1.0], numpy.float32) for agent in self.agents}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.steps = 0
        return self.seen(), {}

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.steps += 1
        is_over = self.steps >= 5
        rewards = {agent: float(action) for agent, action in actions.items()}
        ends = {agent: is_over for agent in [*self.agents, "__all__"]}
        return self.seen(), rewards, ends, dict.fromkeys(ends, False), {}


def ppo(runners: int = 1, environment: Any = "CartPole-v1") -> PPOConfig:
    """A small PPO."""
    return (
        PPOConfig()
        .environment(environment)
        .env_runners(num_env_runners=runners, rollout_fragment_length=50)
        .rl_module(model_config=SMALL)
        .training(train_batch_size_per_learner=200, minibatch_size=50, num_epochs=2)
        .debugging(seed=1)
    )


@contextlib.contextmanager
def built(config: Any) -> Iterator[Algorithm]:
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def weights(algorithm: Algorithm) -> dict[str, Any]:
    return {name: numpy.asarray(value) for name, value in algorithm.get_module().get_state().items()}


def are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(numpy.array_equal(one[name], other[name]) for name in one)


def ppo_learns_on_two_runners() -> Any:
    with built(ppo(2)) as algorithm:
        before = weights(algorithm)
        results = [algorithm.train() for _ in range(3)]
        return [
            [result["training_iteration"] for result in results],
            results[-1]["env_runners"]["num_env_steps_sampled_lifetime"] >= 600,
            are_equal(before, weights(algorithm)),
        ]


def a_corridor_is_learnt() -> Any:
    """PPO in an environment of one's own gets there, and then by the shortest way."""
    config = ppo(1, Corridor).training(train_batch_size_per_learner=400, lr=0.003, num_epochs=6)
    with built(config) as algorithm:
        for _ in range(20):
            found = algorithm.train()["env_runners"]["episode_return_mean"]
            if found > 0.5:
                return True
    return found


def a_checkpoint_is_the_same_again() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        with built(ppo()) as algorithm:
            algorithm.train()
            algorithm.save_to_path(folder)
            kept, iterations = weights(algorithm), algorithm.iteration
        again = Algorithm.from_checkpoint(folder)
        try:
            return [iterations, again.iteration, are_equal(kept, weights(again)), again.train()["training_iteration"]]
        finally:
            again.stop()


def of_second_iteration(config: Any, steps: int) -> Any:
    """What an algorithm that learns from a buffer tells of its second iteration of so many steps."""
    config = (
        config.env_runners(num_env_runners=1, rollout_fragment_length=10)
        .rl_module(model_config=SMALL)
        .training(train_batch_size_per_learner=16, num_steps_sampled_before_learning_starts=50)
        .reporting(min_sample_timesteps_per_iteration=steps)
    )
    with built(config) as algorithm:
        return [algorithm.train() for _ in range(2)][-1]


def dqn_fills_its_buffer() -> Any:
    told = of_second_iteration(DQNConfig().environment("CartPole-v1"), 200)
    return [told["env_runners"]["num_env_steps_sampled_lifetime"] >= 400, "learners" in told]


def sac_of_continuous_actions() -> Any:
    told = of_second_iteration(SACConfig().environment(Reaching), 100)["env_runners"]
    return [-20 <= told["episode_return_mean"] <= 0, told["episode_len_mean"]]


def impala_samples_as_it_learns() -> Any:
    config = (
        IMPALAConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, rollout_fragment_length=25)
        .learners(num_learners=0)
        .rl_module(model_config=SMALL)
        .training(train_batch_size_per_learner=100, num_aggregator_actors_per_learner=0)
        .reporting(min_time_s_per_iteration=1)
    )
    with built(config) as algorithm:
        for _ in range(20):
            result = algorithm.train()
            if result.get("learners", {}).get("default_policy", {}).get("num_module_steps_trained_lifetime", 0) >= 200:
                return result["env_runners"]["num_env_steps_sampled_lifetime"] >= 200
    return False


def agents_with_policies_of_their_own() -> Any:
    config = ppo(1, Two).multi_agent(policies={"one", "other"}, policy_mapping_fn=lambda agent, episode, **more: agent)
    with built(config) as algorithm:
        result = algorithm.train()
        returns = result["env_runners"]["agent_episode_returns_mean"]
        modules = sorted(name for name in result["learners"] if not name.startswith("__"))
        return [sorted(returns), all(0 <= value <= 5 for value in returns.values()), modules, result["env_runners"]["episode_len_mean"]]


class Noting(RLlibCallback):
    """Counts episodes where they run."""

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **more: Any) -> None:
        metrics_logger.log_value("episodes_noted", 1, reduce="sum")

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **more: Any) -> None:
        result["was_told"] = True


def callbacks_are_told_of_episodes() -> Any:
    with built(ppo(2).callbacks(Noting)) as algorithm:
        result = algorithm.train()
        return [result["was_told"], result["env_runners"]["episodes_noted"] > 0]


def evaluation_beside_training() -> Any:
    config = ppo(1).evaluation(
        evaluation_interval=1, evaluation_num_env_runners=1, evaluation_duration=3, evaluation_duration_unit="episodes",
        evaluation_parallel_to_training=True,
    )  # fmt: skip
    with built(config) as algorithm:
        result = algorithm.train()
        alone = algorithm.evaluate()
        return [result["evaluation"]["env_runners"]["num_episodes"], alone["env_runners"]["num_episodes"]]


def an_action_is_computed() -> Any:
    import torch

    with built(ppo()) as algorithm:
        algorithm.train()
        module = algorithm.get_module()
        out = module.forward_inference({Columns.OBS: torch.zeros(3, 4)})
        return list(out[Columns.ACTION_DIST_INPUTS].shape)


def rates_are_tuned() -> Any:
    """Tune runs two algorithms, each with a runner of its own."""
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            "PPO",
            param_space=ppo().training(lr=tune.grid_search([0.001, 0.0001])),
            run_config=tune.RunConfig(storage_path=folder, name="run", stop={"training_iteration": 2}, verbose=0),
            tune_config=tune.TuneConfig(metric="env_runners/episode_return_mean", mode="max"),
        ).fit()
        return [results.num_errors, [result.metrics["training_iteration"] for result in results], results.get_best_result().config["lr"] in (0.001, 0.0001)]


def a_runner_that_died_is_restored() -> Any:
    config = ppo(2).fault_tolerance(restart_failed_env_runners=True, delay_between_env_runner_restarts_s=0)
    with built(config) as algorithm:
        algorithm.train()
        ray.kill(algorithm.env_runner_group._worker_manager._actors[1], no_restart=False)
        for _ in range(20):
            algorithm.train()
            if algorithm.env_runner_group.num_healthy_remote_workers() == 2:
                return [True, algorithm.train()["env_runners"]["num_env_steps_sampled"] > 0]
    return [False]
