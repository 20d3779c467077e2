package peertest

import (
	"testing"

	"github.com/stepvan/stepvan/internal/pairtest"
)

func TestMem(t *testing.T)      { Run(t, pairtest.Mem()) }
func TestOneSided(t *testing.T) { Run(t, pairtest.OneSided()) }
func TestShm(t *testing.T)      { Run(t, pairtest.Shm()) }
func TestUnix(t *testing.T)     { Run(t, Unix()) }
func TestTCP(t *testing.T)      { Run(t, pairtest.TCP()) }
