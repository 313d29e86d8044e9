"""The planner: time and memory of a training step from its parts, calibrated on the user's rows.

    from seatrial import presets
    from seatrial.plan import memory, step
    from seatrial.plan.configs import Configs
    configs = Configs.from_trials([trial])
    step.time(configs, presets.cluster("jz-a100")).sec
    memory.peak(configs, presets.cluster("jz-a100")).gib
"""
