// Package errs makes the errors of package stepvan where many layers make them alike.
package errs
