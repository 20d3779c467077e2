package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan/examples/afd/safetensors"
)

func ExampleNew() {
	const header = `{"scale":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	var image bytes.Buffer
	for _, part := range []any{uint64(len(header)), []byte(header), []float32{0.5, 2}} {
		if err := binary.Write(&image, binary.LittleEndian, part); err != nil {
			fmt.Println(err)
			return
		}
	}
	file, err := safetensors.New(bytes.NewReader(image.Bytes()), int64(image.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	scale := make([]float32, 2)
	err = file.ReadFloat32("scale", 0, scale)
	fmt.Println(file.Names(), scale, err)
	// Output: [scale] [0.5 2] <nil>
}
