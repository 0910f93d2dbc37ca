"""In place of vLLM, which OpenRLHF imports."""


class SamplingParams:
    """Cannot be made."""

    def __init__(self, *args: object, **options: object) -> None:
        raise NotImplementedError("this is no vLLM")
