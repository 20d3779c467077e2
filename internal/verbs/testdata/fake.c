/* libibverbs and librdmacm with one device, which exists in this file only. It shows what this package does with
 * answers that no real device gives on demand. Built with CM it is librdmacm, and else libibverbs. Built with OLD it
 * lacks what old libraries lack.
 *
 * A request whose number is FAILS or more fails to post: with errno number - FAILS. A number above FAILS_NEGATIVE says
 * it as a negative errno, as some providers do, and one above FAILS_SILENTLY does not name the bad request. A posted
 * request with the flag for it completes at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../abi.h"

extern struct abi_context fake_context;

#ifndef CM

enum { FAILS = 1000, FAILS_NEGATIVE = 2000, FAILS_SILENTLY = 3000, ROOM = 64 };

static struct abi_device device = {.name = "fake0", .dev_name = "uverbs0", .ibdev_path = "/sys/class/infiniband/fake0"};

static struct abi_wc ring[ROOM];
static unsigned int head, tail;

static int poll_cq(void *cq, int entries, struct abi_wc *wc)
{
	int n = 0;
	(void)cq;
	while (n < entries && head != tail)
		wc[n++] = ring[head++ % ROOM];
	return n;
}

static int req_notify_cq(void *cq, int solicited_only)
{
	(void)cq;
	return solicited_only ? -EINVAL : 0;
}

static int answer(uint64_t id, int *silent)
{
	*silent = id > FAILS_SILENTLY;
	if (id > FAILS_SILENTLY)
		return (int)(id - FAILS_SILENTLY);
	if (id > FAILS_NEGATIVE)
		return -(int)(id - FAILS_NEGATIVE);
	return id > FAILS ? (int)(id - FAILS) : 0;
}

static int post_send(void *qp, struct abi_send_wr *wr, struct abi_send_wr **bad)
{
	(void)qp;
	for (; wr != NULL; wr = (struct abi_send_wr *)wr->next) {
		int silent, e = answer(wr->wr_id, &silent);
		if (e != 0) {
			if (!silent)
				*bad = wr;
			return e;
		}
		if (wr->send_flags & ABI_SEND_SIGNALED)
			ring[tail++ % ROOM] = (struct abi_wc){.wr_id = wr->wr_id, .opcode = ABI_WC_SEND};
	}
	return 0;
}

static int post_recv(void *qp, struct abi_recv_wr *wr, struct abi_recv_wr **bad)
{
	(void)qp;
	for (; wr != NULL; wr = (struct abi_recv_wr *)wr->next) {
		int silent, e = answer(wr->wr_id, &silent);
		if (e != 0) {
			if (!silent)
				*bad = wr;
			return e;
		}
	}
	return 0;
}

struct abi_context fake_context = {
	.device = &device,
	.ops = {.poll_cq = poll_cq, .req_notify_cq = req_notify_cq, .post_send = post_send, .post_recv = post_recv},
	.num_comp_vectors = 1,
};

void **ibv_get_device_list(int *n)
{
	void **list = calloc(2, sizeof *list);
	list[0] = &device;
	*n = 1;
	return list;
}

void ibv_free_device_list(void **list) { free(list); }

uint64_t ibv_get_device_guid(void *of) { return of == &device ? 0x0807060504030201u : 0; }

int ibv_query_device(void *of, struct abi_device_attr *attr)
{
	(void)of, (void)attr;
	return 524;
}

int ibv_query_port(void *of, uint8_t port, struct abi_port_attr *attr)
{
	(void)of, (void)port, (void)attr;
	errno = ENODEV;
	return -1;
}

int ibv_get_async_event(void *of, struct abi_async_event *event)
{
	(void)of, (void)event;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_async_event(struct abi_async_event *event) { (void)event; }

int ibv_fork_init(void) { return getenv("RDMAV_HUGEPAGES_SAFE") == NULL ? EINVAL : 0; }

void *ibv_alloc_pd(void *of) { (void)of; return malloc(1); }

int ibv_dealloc_pd(void *pd) { free(pd); return 0; }

struct abi_mr *ibv_reg_mr(void *pd, void *addr, size_t length, int access)
{
	struct abi_mr *mr;
	(void)pd;
	if (length == 0 || access & ABI_ACCESS_OPTIONAL_RANGE) {
		errno = length == 0 ? ENOMEM : EINVAL;
		return NULL;
	}
	mr = calloc(1, sizeof *mr);
	mr->addr = addr;
	mr->lkey = 1;
	mr->rkey = 2;
	return mr;
}

int ibv_dereg_mr(void *mr) { free(mr); return 0; }

struct abi_comp_channel *ibv_create_comp_channel(void *of)
{
	(void)of;
	errno = EMFILE;
	return NULL;
}

int ibv_destroy_comp_channel(void *channel) { (void)channel; return 0; }

struct abi_cq *ibv_create_cq(void *of, int entries, void *cq_context, void *channel, int vector)
{
	struct abi_cq *cq = calloc(1, sizeof *cq);
	(void)cq_context, (void)channel, (void)vector;
	cq->context = of;
	cq->cqe = entries;
	return cq;
}

int ibv_destroy_cq(void *cq) { free(cq); return 0; }

int ibv_get_cq_event(void *channel, struct abi_cq **cq, void **cq_context)
{
	(void)channel, (void)cq, (void)cq_context;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_cq_events(void *cq, unsigned int n) { (void)cq, (void)n; }

struct abi_qp *ibv_create_qp(void *pd, struct abi_qp_init_attr *attr)
{
	struct abi_qp *qp = calloc(1, sizeof *qp);
	(void)pd, (void)attr;
	qp->context = &fake_context;
	qp->qp_num = 7;
	return qp;
}

int ibv_modify_qp(void *qp, struct abi_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return 0;
}

int ibv_query_qp(void *qp, struct abi_qp_attr *attr, int mask, struct abi_qp_init_attr *init)
{
	(void)qp, (void)attr, (void)mask, (void)init;
	return EOPNOTSUPP;
}

/* The device keeps a queue pair once. */
int ibv_destroy_qp(void *qp)
{
	static int asked;
	if (asked++ == 0)
		return EBUSY;
	free(qp);
	return 0;
}

#ifndef OLD
struct abi_mr *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return iova == (uintptr_t)addr ? ibv_reg_mr(pd, addr, length, (int)(access & ~ABI_ACCESS_OPTIONAL_RANGE)) : NULL;
}

int _ibv_query_gid_ex(void *of, uint32_t port, uint32_t index, struct abi_gid_entry *entry, uint32_t flags, size_t size)
{
	(void)of, (void)port, (void)flags, (void)size;
	entry->gid_type = ABI_GID_TYPE_ROCE_V2;
	return index == 0 ? 0 : ENODATA;
}

int ibv_is_fork_initialized(void) { return ABI_FORK_UNNEEDED; }
#endif

#else

struct abi_context **rdma_get_devices(int *n)
{
	static struct abi_context *list[2];
	if (fake_context.async_fd == 0)
		fake_context.async_fd = open("/dev/null", O_RDONLY);
	list[0] = &fake_context;
	*n = 1;
	return list;
}

void rdma_free_devices(struct abi_context **list) { (void)list; }

struct abi_event_channel *rdma_create_event_channel(void)
{
	errno = ENODEV;
	return NULL;
}

/* The others are only there. */
#define ABSENT(name) int name(void) { errno = ENOSYS; return -1; }
ABSENT(rdma_destroy_event_channel)
ABSENT(rdma_create_id)
ABSENT(rdma_destroy_id)
ABSENT(rdma_bind_addr)
ABSENT(rdma_resolve_addr)
ABSENT(rdma_resolve_route)
ABSENT(rdma_create_qp)
ABSENT(rdma_destroy_qp)
ABSENT(rdma_listen)
ABSENT(rdma_connect)
ABSENT(rdma_accept)
ABSENT(rdma_reject)
ABSENT(rdma_disconnect)
ABSENT(rdma_set_option)
ABSENT(rdma_migrate_id)
ABSENT(rdma_get_cm_event)
ABSENT(rdma_ack_cm_event)

#endif
