package shm

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

const testBytes = 3*stepBytes + 4096 // several steps and a rest

func create(t *testing.T, size int64) *Memory {
	t.Helper()
	m, err := Create("test", size, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func TestCreateAllocatesAndSealsAll(t *testing.T) {
	m := create(t, testBytes)
	require.Len(t, m.Bytes(), testBytes)
	require.Equal(t, int64(testBytes), m.Size())
	require.False(t, m.Huge())
	require.Equal(t, make([]byte, testBytes), m.Bytes())

	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.FD(), &st))
	require.GreaterOrEqual(t, int64(st.Blocks)*blockBytes, int64(testBytes))
	require.ErrorIs(t, unix.Ftruncate(m.FD(), 4096), unix.EPERM)
	require.ErrorIs(t, unix.Ftruncate(m.FD(), 2*testBytes), unix.EPERM)
	_, err := unix.FcntlInt(uintptr(m.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.ErrorIs(t, err, unix.EPERM)
}

func TestMapShowsTheSameMemory(t *testing.T) {
	m := create(t, testBytes)
	fd, err := unix.Dup(m.FD())
	require.NoError(t, err)
	peer, err := Map(fd, testBytes)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	require.Equal(t, -1, peer.FD())
	copy(m.Bytes()[stepBytes:], "over there")
	require.True(t, bytes.HasPrefix(peer.Bytes()[stepBytes:], []byte("over there")))

	require.NoError(t, m.Close()) // the file lives on in the other mapping
	require.True(t, bytes.HasPrefix(peer.Bytes()[stepBytes:], []byte("over there")))
	require.NoError(t, peer.Close())
	require.NoError(t, peer.Close())
	require.Nil(t, peer.Bytes())
}

func TestCloseReturnsDescriptor(t *testing.T) {
	m, err := Create("test", 4096, false)
	require.NoError(t, err)
	fd := m.FD()
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	require.ErrorIs(t, err, unix.EBADF)
}

// file makes a memfd by hand.
func file(t *testing.T, size, allocated int64, seal int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Ftruncate(fd, size))
	if allocated > 0 {
		require.NoError(t, unix.Fallocate(fd, 0, 0, allocated))
	}
	if seal != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
		require.NoError(t, err)
	}
	return fd
}

func TestMapRefuses(t *testing.T) {
	const size = 1 << 16
	disk, err := os.CreateTemp(t.TempDir(), "disk")
	require.NoError(t, err)
	require.NoError(t, disk.Truncate(size))
	t.Cleanup(func() { require.NoError(t, disk.Close()) })

	cases := map[string]struct {
		fd        int
		announced int64
		want      string
	}{
		"unsealed":            {file(t, size, size, 0), size, "could change its size"},
		"not against shrink":  {file(t, size, size, seals&^unix.F_SEAL_SHRINK), size, "could change its size"},
		"not against growing": {file(t, size, size, seals&^unix.F_SEAL_GROW), size, "could change its size"},
		"not against seals":   {file(t, size, size, seals&^unix.F_SEAL_SEAL), size, "could change its size"},
		"short":               {file(t, size/2, size/2, seals), size, "has 32768 bytes"},
		"longer than said":    {file(t, size, size, seals), size / 2, "has 65536 bytes"},
		"empty":               {file(t, 0, 0, seals), 0, "has 0 bytes"},
		"negative":            {file(t, size, size, seals), -1, "announced with -1"},
		"unbacked":            {file(t, size, 0, seals), size, "only 0 of its"},
		"half backed":         {file(t, size, size/2, seals), size, "only 32768 of its"},
		"no memfd":            {int(disk.Fd()), size, "no seals"},
		"no descriptor":       {-1, size, "no seals"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Map(c.fd, c.announced)
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, m)
		})
	}
}

// A peer that truncates after it has sent the descriptor: the seals that were
// checked forbid it; a file without them was refused.
func TestMappedFileCannotBeTruncated(t *testing.T) {
	const size = 1 << 16
	fd := file(t, size, size, seals)
	m, err := Map(fd, size)
	require.NoError(t, err)
	require.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM)
	m.Bytes()[size-1] = 1
	require.NoError(t, m.Close())
}

func TestMapRefusesSealedAgainstWriting(t *testing.T) {
	const size = 1 << 16
	_, err := Map(file(t, size, size, seals|unix.F_SEAL_WRITE), size)
	require.ErrorContains(t, err, "mapping 65536 bytes")
}

func TestCreateRefuses(t *testing.T) {
	for _, c := range []struct {
		size int64
		huge bool
	}{{0, false}, {-1, false}, {HugePageBytes + 4096, true}} {
		_, err := Create("test", c.size, c.huge)
		require.ErrorIs(t, err, stepvan.ErrInvalid, c)
	}
}

func TestCreateSurvivesAnyName(t *testing.T) {
	m, err := Create("a\x00b"+strings.Repeat("long", 200), 4096, false)
	require.NoError(t, err)
	require.NoError(t, m.Close())
}

func TestHugePagesOrAnError(t *testing.T) {
	m, err := Create("huge", HugePageBytes, true)
	if err != nil {
		require.ErrorContains(t, err, "shm: ")
		return
	}
	require.True(t, m.Huge())
	peer, err := Map(m.FD(), HugePageBytes)
	require.NoError(t, err)
	require.NoError(t, peer.Close())
	require.NoError(t, m.Close())
}

// Not parallel: it takes the process's descriptors away for a moment.
func TestNoDescriptorsLeft(t *testing.T) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	none := old
	none.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err := Create("test", 4096, false)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.ErrorIs(t, err, unix.EMFILE)
	require.ErrorContains(t, err, "ulimit -n")
}

func TestMoreThanTheMemoryThereIs(t *testing.T) {
	_, err := Create("test", 1<<45, false)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "no memory left")
}

func TestExplain(t *testing.T) {
	for code, want := range map[unix.Errno]string{
		unix.EMFILE: "ulimit -n",
		unix.ENFILE: "fs.file-max",
		unix.ENOMEM: "no memory left",
		unix.ENOSPC: "no memory left",
		unix.ENOSYS: "memfd_create",
		unix.EPERM:  "operation not permitted",
	} {
		err := explain("creating", 4096, code)
		require.ErrorIs(t, err, code)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "4096 bytes")
		require.Equal(t, code == unix.ENOMEM || code == unix.ENOSPC, errors.Is(err, stepvan.ErrNoMemory), code)
	}
}

func TestCheckAvailable(t *testing.T) {
	meminfo := "MemTotal: 900 kB\nMemAvailable:   100 kB\nSwapFree: 28 kB\n"
	group := map[string]string{
		"proc/meminfo":                       meminfo,
		"proc/self/cgroup":                   "1:cpu:/x\n0::/pod/a\n",
		"sys/fs/cgroup/pod/a/memory.max":     "65536\n",
		"sys/fs/cgroup/pod/a/memory.current": "40960\n",
		"sys/fs/cgroup/pod/a/memory.stat":    "anon 9\ninactive_file 8192\n",
	}
	unlimited := map[string]string{}
	for k, v := range group {
		unlimited[k] = v
	}
	unlimited["sys/fs/cgroup/pod/a/memory.max"] = "max\n"
	cases := map[string]struct {
		files map[string]string
		have  int64 // the most that is allowed; -1: anything
		names string
	}{
		"system":          {map[string]string{"proc/meminfo": meminfo}, 128 << 10, "the system"},
		"group":           {group, 65536 - 40960 + 8192, "container"},
		"group unlimited": {unlimited, 128 << 10, "the system"},
		"nothing known":   {nil, -1, ""},
		"no estimate":     {map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"}, -1, ""},
		"garbage":         {map[string]string{"proc/meminfo": "MemAvailable: many\n", "proc/self/cgroup": "0::/../..\n"}, -1, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := tree(c.files)
			if c.have < 0 {
				require.NoError(t, checkAvailable(root, 1<<50))
				return
			}
			require.NoError(t, checkAvailable(root, c.have))
			err := checkAvailable(root, c.have+1)
			require.True(t, errors.Is(err, unix.ENOMEM))
			require.ErrorContains(t, err, c.names)
		})
	}
}

func tree(files map[string]string) fs.FS {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}
