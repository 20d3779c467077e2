"""Particles: modules of torch that train side by side, and send each other messages.

A *particle* has an ID, a device, a module, an optimizer, a scheduler of the learning rate, a state of the program, and
functions that other particles call by name. ``push.PusH`` makes particles and calls them. Modules and classes have
the names that they have in PusH (``push.lib``). The package needs torch. Messages need msgspec too:
``pip install 'stepvan[particles]'``.
"""
