package safetensors

import "fmt"

// FormatError says what in a file cannot be, and for which tensor.
type FormatError struct {
	Tensor string // "" when the mistake is in the file as a whole
	Reason string
}

// Error reads `safetensors: tensor "x": reason`.
func (e *FormatError) Error() string {
	if e.Tensor == "" {
		return "safetensors: " + e.Reason
	}
	return fmt.Sprintf("safetensors: tensor %q: %s", e.Tensor, e.Reason)
}

func malformed(name, format string, args ...any) error {
	return &FormatError{Tensor: name, Reason: fmt.Sprintf(format, args...)}
}
