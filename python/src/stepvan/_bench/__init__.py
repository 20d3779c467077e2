"""A worker or server of ``stepvan bench --nodes numpy,torch --peer nixl``, which starts ``python -m stepvan._bench``.

It runs the commands of the measuring process (bench/control.go), like a node in Go. It exchanges with the public names
of the package, in loops as tight as those of a program that does nothing else.
"""
