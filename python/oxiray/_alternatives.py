"""What to do instead of a name that Ray has and Oxiray has not.

Purpose: whoever meets a missing name learns the way out. Consulted only after `oxiray` was asked, so a row goes
stale, never wrong, when Oxiray grows.
"""

from __future__ import annotations

#: What is said of a library whose files can be taken over.
INSTALLED = "is a library of Ray's that is not installed: `oxiray ray install \"{0}\"` takes its files over, to run on Oxiray"
_CLIENT = "is Ray Client, which Ray deprecates: connect with init(address='host:port') instead"
_TRAINS = "is not in this version: use ray.train.torch.TorchTrainer, or DataParallelTrainer"
_FIRST_VERSION = "belongs to the first version of Ray Train: use the trainers of ray.train, and report() in the function"
_JAVA = "calls Java, which Oxiray does not run: start it as a process of its own in a task"
_OBJECTS = "describes the insides of Ray's own processes: see `oxiray status` and ray.util.state for Oxiray's"

#: Name under `ray` -> why it is not there, and the way out. The longest name that fits speaks.
ALTERNATIVES = {
    "_private": "is private to Ray, and Oxiray has other insides: use the public API, such as ray.util.state",
    "_raylet": "is Ray's native module, and Oxiray has another: the identifiers are in `ray` itself",
    "_config": "is private to Ray: settings are arguments of init() and of `oxiray start`",
    "AUTO_INIT_APIS": _OBJECTS,
    "NON_AUTO_INIT_APIS": _OBJECTS,
    "actor.AsyncioActorExit": "is ray.exceptions.AsyncioActorExit",
    "air": "was folded into training and tuning: ScalingConfig, RunConfig, FailureConfig, CheckpointConfig, Result, and Checkpoint are in ray.train",
    "air.session": "was replaced by report, get_checkpoint, get_context, and get_dataset_shard of ray.train",
    "autoscaler.sdk": "starts clusters on clouds: say what may be started with `oxiray start --head --autoscale`",
    "cpp_function": "calls C++ functions, which Oxiray does not run: wrap them in a Python function",
    "cross_language": "calls Java and C++, which Oxiray does not run: wrap them in a Python function. For Rust, see oxiray.rust",
    "dag": "belongs to compiled graphs: bind() and execute() are there; call .remote() and pass references for the rest",
    "data": INSTALLED.format("data"),
    "data.llm": INSTALLED.format("llm"),
    "experimental": "is not promised to stay by Ray, and is not in this version",
    "experimental.compiled_dag_ref": "belongs to compiled graphs: call .remote() and pass references instead",
    "experimental.dynamic_resources": "was removed from Ray too: give resources to init() or `oxiray start`",
    "experimental.set_resource": "was removed from Ray too: give resources to init() or `oxiray start`",
    "java_actor_class": _JAVA,
    "java_function": _JAVA,
    "llm": INSTALLED.format("llm"),
    "rllib": INSTALLED.format("rllib"),
    "serve": INSTALLED.format("serve"),
    "serve.llm": INSTALLED.format("llm"),
    "train.base_trainer": _FIRST_VERSION,
    "train.context": "has its names in ray.train: get_context and TrainContext",
    "train.error": _FIRST_VERSION,
    "train.horovod": "was removed from Ray's second version too: use ray.train.torch.TorchTrainer",
    "train.huggingface": f"{_TRAINS}, with transformers.Trainer in the function",
    "train.lightgbm": INSTALLED.format("train"),
    "train.lightning": f"{_TRAINS}, with lightning.Trainer in the function, of one device and one node",
    "train.session": _FIRST_VERSION,
    "train.tensorflow": INSTALLED.format("train"),
    "train.torch.train_loop_utils": "has its names in ray.train.torch",
    "train.torch.xla": "is not in this version: use ray.train.v2.jax.JaxTrainer on TPUs, or torch_xla's own launcher in a task",
    "train.trainer": _FIRST_VERSION,
    "train.utils": _FIRST_VERSION,
    "train.v2.horovod": "was removed from Ray's second version too: use ray.train.torch.TorchTrainer",
    "train.v2.jax.config": "has its names in ray.train.v2.jax",
    "train.v2.jax.jax_trainer": "has its names in ray.train.v2.jax",
    "train.v2.lightgbm": INSTALLED.format("train"),
    "train.v2.tensorflow": INSTALLED.format("train"),
    "train.v2.torch.torchft_config": "is not in this version: a group of which a worker died starts again from its last checkpoint",
    "train.v2.torch.train_loop_utils": "has its names in ray.train.torch",
    "train.v2.xgboost": INSTALLED.format("train"),
    "train.xgboost": INSTALLED.format("train"),
    "tune": INSTALLED.format("tune"),
    "util.check_open_ports": "asks a service of Ray's makers; Oxiray opens no TCP port",
    "util.client": _CLIENT,
    "util.debugpy": "is Ray's debugger for an editor, which opens a port: call breakpoint() inside the task, and run `oxiray debug`; or call debugpy.listen() there",
    "util.horovod": "was removed from Ray too: use torch.distributed inside the actors",
    "util.lightgbm": "was removed from Ray too: use the package lightgbm_ray, or lightgbm inside actors",
    "util.ray_debugpy": "is Ray's debugger for an editor, which opens a port: call breakpoint() inside the task, and run `oxiray debug`; or call debugpy.listen() there",
    "util.sgd": "was removed from Ray too: use torch.distributed inside the actors",
    "util.spark": "starts Ray inside Spark's executors, which Oxiray does not: start daemons with `oxiray start`",
    "util.tpu.SubslicePlacementGroup": "is not in this version: reserve a whole slice with ray.util.tpu.slice_placement_group()",
    "util.tpu.subslice_placement_group": "is not in this version: reserve a whole slice with ray.util.tpu.slice_placement_group()",
    "util.xgboost": "was removed from Ray too: use the package xgboost_ray, or xgboost inside actors",
    "util.state.StateApiClient": "speaks to Ray's dashboard: use the functions of ray.util.state",
    "widgets": "shows notebooks' boxes, which Oxiray does not have",
    "workflow": "was removed from Ray too",
}
