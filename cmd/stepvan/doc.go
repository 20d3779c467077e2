// Command stepvan starts clusters, measures them, and tells what is wrong with a
// machine or its settings. `stepvan help` lists the sub-commands, which are in package command.
package main
