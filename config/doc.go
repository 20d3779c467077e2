// Package config turns environment variables into [Settings], once, at the start of a process. It is for stepvan
// itself; package ps shows Settings under that name.
//
// The struct Settings is the single source: its field tags have the name, the aliases, the default, the limits and the
// doc line of every setting. One table follows from the tags. From the table follow the parser, the output of `stepvan
// env` ([Settings.Table]), the environment of child processes ([Settings.Env]) and docs/settings.md ([Markdown]).
//
// [FromEnv] is pure: it sees only its arguments. It reports every mistake at once, each as a [stepvan.ConfigError] that
// names the variable that the user wrote and says what to set. A name that looks like a setting and is unknown is a
// warning, with the nearest known name.
//
// Settings is a plain value without references: copy it freely. No function of this package keeps state between calls,
// and all may be called concurrently. Packages below ps never import config; ps maps Settings to their options.
package config

//go:generate go run ./gen -o ../docs/settings.md
