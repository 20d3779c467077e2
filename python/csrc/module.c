/* The module stepvan._core: the table of its functions. */
#include "core.h"

#include "names.h"

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
	FAST("use_torch", use_torch),
	FAST("use_numpy", use_numpy),
	FAST("set_request", set_request),
	{"set_errors", set_errors, METH_O, NULL},
	{"set_discover", set_discover, METH_O, NULL},
	{"dtype_size", dtype_bytes, METH_O, NULL},
	{"dtype_names", dtype_names, METH_NOARGS, NULL},

	FAST("start", node_start),
	FAST("stop", node_stop),
	FAST("barrier", node_barrier),
	{"close", node_close, METH_O, NULL},
	FAST("stop_at_exit", stop_at_exit),
	{"info", node_info, METH_O, NULL},
	{"peer_info", node_peer_info, METH_O, NULL},
	{"peers", node_peers, METH_O, NULL},
	{"health", node_health, METH_O, NULL},

	FAST("allocate", allocate),
	FAST("in_own_file", in_own_file),
	FAST("view", view),
	FAST("make_views", make_views),
	{"collect", collect, METH_NOARGS, NULL},

	FAST("push_pull", push_pull),
	FAST("wait", handle_wait),
	FAST("done", handle_done),
	FAST("operations", handle_operations),
	FAST("trace", handle_trace),
	FAST("traces", handle_traces),
	FAST("lengths", handle_lengths),

	FAST("register", register_tensor),
	FAST("register_recv_buffer", register_recv_buffer),
	FAST("registration_wait", registration_wait),
	FAST("unregister", unregister),

	FAST("get_batch", get_batch),
	FAST("respond", respond),
	FAST("respond_copy", respond_copy),
	FAST("respond_vec", respond_vec),
	FAST("respond_vec_copy", respond_vec_copy),
	FAST("response_wait", response_wait),
	FAST("response_done", response_done),

	{"queue_open", queue_open, METH_NOARGS, NULL},
	{"queue_take", queue_take, METH_O, NULL},
	{"queue_close", queue_close, METH_O, NULL},
	FAST("notify", notify),
	FAST("response_notify", response_notify),

	FAST("send", peer_send),
	FAST("recv", peer_recv),
	FAST("cancel", peer_cancel),
	FAST("plan", peer_plan),
	FAST("plan_begin", plan_begin),
	{"plan_state", plan_state, METH_O, NULL},
	{"plan_stats", plan_stats, METH_O, NULL},
	FAST("plan_close", plan_close),
	FAST("group", peer_group),
	{"group_barrier", group_barrier, METH_O, NULL},
	FAST("group_all_gather", group_all_gather),
	FAST("group_broadcast", group_broadcast),
	FAST("group_reduce", group_reduce),
	FAST("gathered", gathered),
	{"group_close", group_close, METH_O, NULL},
	{"group_forget", group_forget, METH_O, NULL},

	FAST("agent", bus_agent),
	FAST("agent_close", bus_agent_close),

	FAST("particle_open", particle_open),
	FAST("particle_close", particle_close),
	FAST("particle_create", particle_create),
	FAST("particle_list", particle_list),
	FAST("particle_hook", particle_hook),
	FAST("particle_send", particle_send),
	FAST("particle_get", particle_get),
	FAST("particle_wait", particle_wait),
	FAST("particle_is_done", particle_is_done),
	FAST("particle_notify", particle_notify),
	FAST("particle_result", particle_result),
	FAST("particle_failure", particle_failure),
	FAST("particle_forget", particle_forget),
	FAST("particle_next", particle_next),
	FAST("particle_done", particle_done),
	FAST("particle_share", particle_share),
	FAST("particle_views", particle_views),

	FAST("mail", peer_mail),
	FAST("listen", peer_listen),
	FAST("mailbox_next", mailbox_next),
	FAST("mailbox_notify", mailbox_notify),
	{"mailbox_close", mailbox_close, METH_O, NULL},
	FAST("expose", peer_expose),
	FAST("unexpose", peer_unexpose),
	FAST("get", peer_get),
	FAST("put", peer_put),
	FAST("put_rows", peer_put_rows),
	FAST("post", board_post),
	FAST("unpost", board_unpost),
	FAST("watch", board_watch),
	FAST("watch_next", watch_next),
	{"watch_close", watch_close, METH_O, NULL},

	FAST("part_of_spans", part_of_spans),
	FAST("part_of_mesh", part_of_mesh),
	FAST("part_of_partition", part_of_partition),
	{"part_shape", part_shape, METH_O, NULL},
	FAST("match", peer_match),

	FAST("reshard_plan", reshard_plan),
	{"reshard_check", reshard_check, METH_O, NULL},
	FAST("reshard_source", reshard_source),

	FAST("main", run_command),
	{"version", library_version, METH_NOARGS, NULL},
	{"wheel_version", wheel_version, METH_NOARGS, NULL},
	{"check_fork", check_fork, METH_NOARGS, NULL},
	{"get_nanosecond", get_nanosecond, METH_NOARGS, NULL},
	{0},
};

/* The library and its tables belong to the process, so one interpreter can use them. */
static int execute(PyObject *module)
{
	static int taken;
	if (taken) {
		PyErr_SetString(PyExc_ImportError, "stepvan is loaded in this process already: subinterpreters cannot share it");
		return -1;
	}
	if (library_find() < 0 || names_ready() < 0 || memory_ready(module) < 0 || chunks_ready(module) < 0 || views_ready(module) < 0 || request_ready(module) < 0)
		return -1;
	taken = 1;
	return 0;
}

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, execute},
	{0, NULL},
};

static PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "stepvan._core",
	.m_doc = "The C interface of libstepvan.so for the package stepvan, which has the documentation.",
	.m_methods = methods,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&definition);
}
