// Package text writes for people what others have chosen: texts of a program, a user or a peer, of any length.
package text
