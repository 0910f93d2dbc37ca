"""Types of `ray.actor`: those of `oxiray`."""

from oxiray import ActorClass as ActorClass
from oxiray import ActorClassInheritanceException as ActorClassInheritanceException
from oxiray import ActorHandle as ActorHandle
from oxiray import ActorMethod as ActorMethod
from oxiray import method as method
from oxiray.actor import exit_actor as exit_actor
