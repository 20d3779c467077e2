package main

// #include "boundary.h"
import "C"

// The structs of stepvan.h, under names that tests can use, too.
type (
	cError    = C.stepvan_error
	cTensor   = C.stepvan_tensor
	cView     = C.stepvan_view
	cExchange = C.stepvan_exchange
	cBatch    = C.stepvan_batch
	cRequest  = C.stepvan_request
	cSetting  = C.stepvan_setting
	cInfo     = C.stepvan_node_info
	cPeer     = C.stepvan_peer
	cBytes    = C.stepvan_bytes
	cMove     = C.stepvan_move
	cEntry    = C.stepvan_entry
	cNamed    = C.stepvan_named
	cValue    = C.stepvan_particle_value
	cCall     = C.stepvan_particle_call
	cPlace    = C.stepvan_particle_place

	cLoopOptions = C.stepvan_particle_options

	cPlacement = C.stepvan_placement

	cPlanStats = C.stepvan_plan_stats

	cChar   = C.char
	cCode   = C.int32_t
	cInt32  = C.int32_t
	cInt64  = C.int64_t
	cUint32 = C.uint32_t
	cUint64 = C.uint64_t
	cUint16 = C.uint16_t
	cUint8  = C.uint8_t
)

// Codes of stepvan.h.
const (
	codeOK           = cCode(C.STEPVAN_OK)
	codeTimeout      = cCode(C.STEPVAN_TIMEOUT)
	codeClosed       = cCode(C.STEPVAN_CLOSED)
	codePeerLost     = cCode(C.STEPVAN_PEER_LOST)
	codeConfig       = cCode(C.STEPVAN_CONFIG)
	codeInvalid      = cCode(C.STEPVAN_INVALID)
	codeBusy         = cCode(C.STEPVAN_BUSY)
	codeWouldBlock   = cCode(C.STEPVAN_WOULD_BLOCK)
	codeStale        = cCode(C.STEPVAN_STALE)
	codeNotSupported = cCode(C.STEPVAN_NOT_SUPPORTED)
	codeRemote       = cCode(C.STEPVAN_REMOTE)
	codeProtocol     = cCode(C.STEPVAN_PROTOCOL)
	codeTooSmall     = cCode(C.STEPVAN_TOO_SMALL)
	codeInternal     = cCode(C.STEPVAN_INTERNAL)
	codeExpired      = cCode(C.STEPVAN_EXPIRED)
	codeRefused      = cCode(C.STEPVAN_REFUSED)
	codeNoMemory     = cCode(C.STEPVAN_NO_MEMORY)
)

const (
	flagVariable = C.STEPVAN_VARIABLE
	flagReadOnly = C.STEPVAN_READ_ONLY
	flagZeroed   = C.STEPVAN_ZEROED
	flagOwnFile  = C.STEPVAN_OWN_FILE
	flagViews    = C.STEPVAN_VIEWS
	flagWrite    = C.STEPVAN_WRITE
	flagCast     = C.STEPVAN_RESHARD_CAST

	flagAllowPickled = C.STEPVAN_PARTICLE_ALLOW_PICKLED
	flagPickled      = C.STEPVAN_PARTICLE_PICKLED
	flagLent         = C.STEPVAN_PARTICLE_LENT
	flagView         = C.STEPVAN_PARTICLE_VIEW

	stampCount = C.STEPVAN_STAMPS
	maxRank    = C.STEPVAN_MAX_RANK
	maxValue   = C.STEPVAN_MAX_VALUE
)

// Roles and groups of stepvan.h.
const (
	roleWorker    = C.STEPVAN_WORKER
	roleServer    = C.STEPVAN_SERVER
	roleJoint     = C.STEPVAN_JOINT
	roleScheduler = C.STEPVAN_SCHEDULER
	rolePeer      = C.STEPVAN_PEER
)
