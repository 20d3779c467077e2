"""Batches of experience for a learner: from slots in memory of the host to its device, while it computes.

``stepvan.replay_pipelines.transfer`` copies a slot. Modules, names and signatures are as in UniLab's
``unilab.ipc.replay_pipelines``.
"""
