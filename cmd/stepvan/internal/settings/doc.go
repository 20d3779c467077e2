// Package settings shows the table of settings to people and programs. Package
// config has the table itself. All functions may be called concurrently. They
// return the errors of the writer.
package settings
