package main

// #include "boundary.h"
import "C"

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"unsafe"

	"github.com/stepvan/stepvan/cmd/stepvan/command"
)

// codeNoCommand is the exit code of stepvan_main where no command line can be run.
const codeNoCommand = 125

// oneCommand is held while a command line runs: it has the signals and the environment of the process.
var oneCommand sync.Mutex

// goMain implements
//
//	int32_t stepvan_main(int32_t argc, const char *const *argv, int32_t selfc, const char *const *self);
//
//export goMain
func goMain(argc cInt32, argv **C.char, selfc cInt32, self **C.char) (code cInt32) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "stepvan: panic: %v\n%s", r, debug.Stack())
			code = codeNoCommand
		}
	}()
	args, ok := texts(argv, argc)
	itself, known := texts(self, selfc)
	if !ok || !known {
		fmt.Fprintln(os.Stderr, "stepvan: stepvan_main was given NULL or a negative number in place of arguments")
		return codeNoCommand
	}
	if !oneCommand.TryLock() {
		fmt.Fprintln(os.Stderr, "stepvan: another thread is in stepvan_main")
		return codeNoCommand
	}
	defer oneCommand.Unlock()
	setEnvironment(processEnvironment())
	return cInt32(command.ExecuteAs(context.Background(), itself, args, os.Stdout, os.Stderr))
}

// texts are strings of C.
func texts(p **C.char, n cInt32) (out []string, ok bool) {
	if n < 0 || n > 0 && p == nil {
		return nil, false
	}
	for _, s := range list[*C.char](unsafe.Pointer(p), cUint64(n)) {
		if s == nil {
			return nil, false
		}
		out = append(out, C.GoString(s))
	}
	return out, true
}

// setEnvironment replaces the environment that Go read when it started by the present one of the process.
func setEnvironment(environ []string) {
	given := map[string]bool{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		given[name] = true
		_ = os.Setenv(name, value) // fails for names that no program can read either
	}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); !given[name] {
			_ = os.Unsetenv(name)
		}
	}
}
