package affinity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// cacheFiles describes caches of core 3 as the kernel does.
func cacheFiles(siblings string, caches ...[4]string) Machine {
	of := map[string]string{"sys/devices/system/cpu/cpu3/topology/thread_siblings_list": siblings + "\n"}
	for i, c := range caches {
		dir := "sys/devices/system/cpu/cpu3/cache/index" + string(rune('0'+i)) + "/"
		of[dir+"level"], of[dir+"type"], of[dir+"size"], of[dir+"shared_cpu_list"] = c[0]+"\n", c[1]+"\n", c[2]+"\n", c[3]+"\n"
	}
	return files(of)
}

func TestCaches(t *testing.T) {
	data, code := [4]string{"1", "Data", "48K", "3"}, [4]string{"1", "Instruction", "32K", "3"}
	for name, c := range map[string]struct {
		machine Machine
		want    Caches
	}{
		"a core with a cache of its own": {
			cacheFiles("3", data, code, [4]string{"2", "Unified", "2048K", "3"}, [4]string{"3", "Unified", "32768K", "0-7"}),
			Caches{Second: 2 << 20, Last: 32 << 20},
		},
		"two threads of a core": {
			cacheFiles("3,7", data, code, [4]string{"2", "Unified", "1024K", "3,7"}, [4]string{"3", "Unified", "32768K", "0-7"}),
			Caches{Second: 1 << 20, Last: 32 << 20},
		},
		"four cores with one cache":   {cacheFiles("3", data, [4]string{"2", "Unified", "4096K", "0-3"}), Caches{Second: 1 << 20}},
		"a cache for code alone":      {cacheFiles("3", [4]string{"2", "Instruction", "4096K", "3"}), Caches{}},
		"a size that is none":         {cacheFiles("3", [4]string{"2", "Unified", "much", "3"}, [4]string{"3", "Unified", "-1K", "3"}), Caches{}},
		"a size in bytes":             {cacheFiles("3", [4]string{"2", "Unified", "524288", "3"}), Caches{Second: 512 << 10}},
		"sharing that is not told":    {cacheFiles("what", [4]string{"2", "Unified", "512K", "what"}), Caches{Second: 512 << 10}},
		"a machine that says nothing": {files(nil), Caches{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.machine.Caches(3)) })
	}
	require.Zero(t, cacheFiles("3", data).Caches(4))
}
