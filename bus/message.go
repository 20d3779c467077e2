package bus

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Encode returns the bytes of a command. msgspec makes the same of the class of that name in Python. It refuses
// what [Command.Check] refuses.
func Encode(c Command) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	b := msgp.AppendMapHeader(make([]byte, 0, 256), uint32(3+c.fields())) // enough for all but payloads
	b = appendText(b, "type", c.Name())
	b = msgp.AppendString(b, "timestamp")
	if t := c.Base().Timestamp; t != 0 {
		b = msgp.AppendFloat64(b, t)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendString(b, "semaphore_name")
	if s := c.Base().Semaphore; s != "" {
		b = msgp.AppendString(b, s)
	} else {
		b = msgp.AppendNil(b)
	}
	if b = c.appendFields(b); len(b) > MaxCommand {
		return nil, errs.Invalid("%s: too long (got %d, want at most %d bytes): register fewer tensors at once", c.Name(), len(b), MaxCommand)
	}
	return b, nil
}

// Decode reads what [Encode] or msgspec has written. It trusts nothing. Bytes that do not make a command are a
// [stepvan.ProtocolError], and a command that no agent could follow is a [stepvan.ErrInvalid]. The command
// shares no memory with b.
func Decode(b []byte) (Command, error) {
	c, err := decode(b)
	if err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

func decode(b []byte) (Command, error) {
	if len(b) > MaxCommand {
		return nil, errs.Protocol("command", 0, "too long (got %d, want at most %d bytes)", len(b), MaxCommand)
	}
	f := readFields(b)
	name := f.text("type")
	if f.err != nil {
		return nil, f.err
	}
	c := commandOf(name)
	if c == nil {
		return nil, errs.Protocol("type", f.at, "unknown command (got %q, want one of %v)", text.Cut(name), commandNames())
	}
	*c.Base() = BaseCommand{f.time("timestamp"), f.textOrNone("semaphore_name")}
	c.read(f)
	if err := f.end(); err != nil {
		return nil, err
	}
	return c, nil
}

func commandNames() []string {
	return []string{"InitPair", "RegisterTensors", "Transfer", "QueryStatus", "CleanupBatch"}
}

func commandOf(name string) Command {
	switch name {
	case "InitPair":
		return &InitPair{}
	case "RegisterTensors":
		return &RegisterTensors{}
	case "Transfer":
		return &Transfer{}
	case "QueryStatus":
		return &QueryStatus{}
	case "CleanupBatch":
		return &CleanupBatch{}
	}
	return nil
}

func (*InitPair) fields() int { return 6 }

func (c *InitPair) appendFields(b []byte) []byte {
	b = appendText(b, "pair_name", c.PairName)
	b = appendText(b, "local_name", c.LocalName)
	b = appendNumber(b, "expected_world_size", uint64(c.ExpectedWorldSize))
	b = appendText(b, "remote_name", c.RemoteName)
	b = appendPayload(b, "mesh_shape_payload", c.MeshShape)
	return appendPayload(b, "placements_payload", c.Placements)
}

func (c *InitPair) read(f *fields) {
	c.PairName, c.LocalName = f.text("pair_name"), f.text("local_name")
	c.ExpectedWorldSize = int(f.number("expected_world_size", maxWorld))
	c.RemoteName = f.text("remote_name")
	c.MeshShape, c.Placements = f.payloadOrNone("mesh_shape_payload"), f.payloadOrNone("placements_payload")
}

func (*RegisterTensors) fields() int { return 3 }

func (c *RegisterTensors) appendFields(b []byte) []byte {
	b = appendText(b, "batch_id", c.BatchID)
	b = msgp.AppendString(b, "tensors")
	b = msgp.AppendArrayHeader(b, uint32(len(c.Tensors)))
	for _, t := range c.Tensors {
		b = msgp.AppendArrayHeader(b, 2)
		b = msgp.AppendString(b, t.PairName)
		b = msgp.AppendBytes(b, t.Handle)
	}
	b = msgp.AppendString(b, "bucket_size")
	if c.BucketSize == 0 {
		return msgp.AppendNil(b)
	}
	return msgp.AppendUint64(b, uint64(c.BucketSize))
}

func (c *RegisterTensors) read(f *fields) {
	c.BatchID = f.text("batch_id")
	for range f.array("tensors", MaxTensors) {
		if f.tuple(2); f.err != nil {
			return
		}
		c.Tensors = append(c.Tensors, TensorOfPair{f.nextText(), f.nextPayload()})
	}
	f.endValue()
	c.BucketSize = int64(f.numberOrNone("bucket_size", 1<<62))
}

func (*Transfer) fields() int { return 2 }

func (c *Transfer) appendFields(b []byte) []byte {
	return appendText(appendText(b, "batch_id", c.BatchID), "transfer_type", string(c.Type))
}

func (c *Transfer) read(f *fields) {
	c.BatchID, c.Type = f.text("batch_id"), TransferType(f.text("transfer_type"))
}

func (*QueryStatus) fields() int { return 2 }

func (c *QueryStatus) appendFields(b []byte) []byte {
	return appendText(appendText(b, "batch_id", c.BatchID), "state_name", c.StateName)
}

func (c *QueryStatus) read(f *fields) {
	c.BatchID, c.StateName = f.text("batch_id"), StateStatus
	if f.has("state_name") {
		c.StateName = f.text("state_name")
	}
}

func (*CleanupBatch) fields() int { return 1 }

func (c *CleanupBatch) appendFields(b []byte) []byte { return appendText(b, "batch_id", c.BatchID) }

func (c *CleanupBatch) read(f *fields) { c.BatchID = f.text("batch_id") }

func appendText(b []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(b, key), value)
}

// appendNumber writes a number in its shortest form, as msgspec does.
func appendNumber(b []byte, key string, value uint64) []byte {
	return msgp.AppendUint64(msgp.AppendString(b, key), value)
}

func appendPayload(b []byte, key string, value []byte) []byte {
	b = msgp.AppendString(b, key)
	if value == nil {
		return msgp.AppendNil(b)
	}
	return msgp.AppendBytes(b, value)
}
