// Package command is the command line of stepvan: of the program, and of libstepvan.so for
// `python -m stepvan`.
//
// Each sub-command is a file with its constructor, which root.go lists. This
// package turns flags into the options of other packages; the work is done there.
// Commands that start further processes of this program run the launch.Program that ExecuteAs was given.
package command
