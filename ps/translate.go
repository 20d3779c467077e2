package ps

import (
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/trace"
)

// The settings in the words of the layers.

func progressOf(s *Settings, p *placement) progress.Options {
	o := progress.Options{Cores: p.share(), Bind: p.bind()}
	switch s.Progress {
	case config.ProgressSpin:
		o.Mode = progress.Spin
	case config.ProgressPark:
		o.Mode = progress.Park
	}
	return o
}

func sharedOf(s *Settings) []postoffice.Setting {
	pairs := s.Shared()
	out := make([]postoffice.Setting, len(pairs))
	for i, p := range pairs {
		out[i] = postoffice.Setting(p)
	}
	return out
}

func ringOf(s *Settings) *trace.Ring {
	if s.TraceEvents == 0 {
		return nil
	}
	return trace.NewRing(s.TraceEvents)
}

// inPlaceOf is what the worker takes: there 0 stands for its default, and a negative size for none.
func inPlaceOf(s *Settings) int {
	if s.InPlaceBytes == 0 {
		return -1
	}
	return int(s.InPlaceBytes)
}
