package main

// #include "boundary.h"
import "C"

//export goMain
func goMain(argc cInt32, argv **C.char, selfc cInt32, self **C.char) (code cInt32) {
	return 125
}
