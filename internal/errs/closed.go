package errs

// Closed makes an ErrClosed that reads text, and nothing else.
func Closed(text string) error { return plain(text, ErrClosed) }

// plainError reads as it is meant for people, without the text of what it is.
type plainError struct {
	text string
	kind error
}

func plain(text string, kind error) error { return &plainError{text, kind} }

func (e *plainError) Error() string { return e.text }

func (e *plainError) Unwrap() error { return e.kind }
