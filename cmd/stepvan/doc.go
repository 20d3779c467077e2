// Command stepvan starts clusters, measures them, and tells what is wrong with a
// machine or its settings. `stepvan help` lists the sub-commands.
//
// Each sub-command is a file with its constructor, which root.go lists. This
// package turns flags into the options of other packages; the work is done there.
package main
