#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions of the libraries, under their own names. */
struct functions {
	void **(*ibv_get_device_list)(int *n);
	void (*ibv_free_device_list)(void **list);
	uint64_t (*ibv_get_device_guid)(void *device);
	int (*ibv_query_device)(void *context, struct abi_device_attr *attr);
	int (*ibv_query_port)(void *context, uint8_t port, struct abi_port_attr *attr);
	int (*ibv_get_async_event)(void *context, struct abi_async_event *event);
	void (*ibv_ack_async_event)(struct abi_async_event *event);
	int (*ibv_fork_init)(void);
	void *(*ibv_alloc_pd)(void *context);
	int (*ibv_dealloc_pd)(void *pd);
	struct abi_mr *(*ibv_reg_mr)(void *pd, void *addr, size_t length, int access);
	int (*ibv_dereg_mr)(void *mr);
	struct abi_comp_channel *(*ibv_create_comp_channel)(void *context);
	int (*ibv_destroy_comp_channel)(void *channel);
	struct abi_cq *(*ibv_create_cq)(void *context, int entries, void *cq_context, void *channel, int vector);
	int (*ibv_destroy_cq)(void *cq);
	int (*ibv_get_cq_event)(void *channel, struct abi_cq **cq, void **cq_context);
	void (*ibv_ack_cq_events)(void *cq, unsigned int n);
	struct abi_qp *(*ibv_create_qp)(void *pd, struct abi_qp_init_attr *attr);
	int (*ibv_modify_qp)(void *qp, struct abi_qp_attr *attr, int mask);
	int (*ibv_query_qp)(void *qp, struct abi_qp_attr *attr, int mask, struct abi_qp_init_attr *init);
	int (*ibv_destroy_qp)(void *qp);

	/* These may be missing. */
	struct abi_mr *(*ibv_reg_mr_iova2)(void *pd, void *addr, size_t length, uint64_t iova, unsigned int access);
	struct abi_mr *(*ibv_reg_dmabuf_mr)(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
	int (*_ibv_query_gid_ex)(void *context, uint32_t port, uint32_t index, struct abi_gid_entry *entry, uint32_t flags, size_t size);
	int (*ibv_is_fork_initialized)(void);

	struct abi_context **(*rdma_get_devices)(int *n);
	void (*rdma_free_devices)(struct abi_context **list);
	struct abi_event_channel *(*rdma_create_event_channel)(void);
	void (*rdma_destroy_event_channel)(void *channel);
	int (*rdma_create_id)(void *channel, struct abi_cm_id **id, void *context, int space);
	int (*rdma_destroy_id)(void *id);
	int (*rdma_bind_addr)(void *id, const void *address);
	int (*rdma_resolve_addr)(void *id, const void *source, const void *destination, int ms);
	int (*rdma_resolve_route)(void *id, int ms);
	int (*rdma_create_qp)(void *id, void *pd, struct abi_qp_init_attr *attr);
	void (*rdma_destroy_qp)(void *id);
	int (*rdma_listen)(void *id, int backlog);
	int (*rdma_connect)(void *id, struct abi_conn_param *param);
	int (*rdma_accept)(void *id, struct abi_conn_param *param);
	int (*rdma_reject)(void *id, const void *private_data, uint8_t length);
	int (*rdma_disconnect)(void *id);
	int (*rdma_set_option)(void *id, int level, int option, void *value, size_t size);
	int (*rdma_migrate_id)(void *id, void *channel);
	int (*rdma_get_cm_event)(void *channel, struct abi_cm_event **event);
	int (*rdma_ack_cm_event)(struct abi_cm_event *event);
};

static struct functions lib;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static const char *wrong; /* with the libraries, or NULL */

/* find stores the address of a symbol, and returns 0 if the library lacks it. */
static int find(void *library, const char *symbol, void *where)
{
	void *found = dlsym(library, symbol);
	memcpy(where, &found, sizeof found);
	return found != NULL;
}

#define NEED(library, name) \
	if (!find(library, #name, &f->name)) \
		return missing(#name)
#define MAY(library, name) find(library, #name, &f->name)

static __thread char text[512];

static const char *missing(const char *symbol)
{
	snprintf(text, sizeof text, "it has no %s: install rdma-core 24 or later", symbol);
	return text;
}

static const char *find_verbs(struct functions *f, void *l)
{
	NEED(l, ibv_get_device_list);
	NEED(l, ibv_free_device_list);
	NEED(l, ibv_get_device_guid);
	NEED(l, ibv_query_device);
	NEED(l, ibv_query_port);
	NEED(l, ibv_get_async_event);
	NEED(l, ibv_ack_async_event);
	NEED(l, ibv_fork_init);
	NEED(l, ibv_alloc_pd);
	NEED(l, ibv_dealloc_pd);
	NEED(l, ibv_reg_mr);
	NEED(l, ibv_dereg_mr);
	NEED(l, ibv_create_comp_channel);
	NEED(l, ibv_destroy_comp_channel);
	NEED(l, ibv_create_cq);
	NEED(l, ibv_destroy_cq);
	NEED(l, ibv_get_cq_event);
	NEED(l, ibv_ack_cq_events);
	NEED(l, ibv_create_qp);
	NEED(l, ibv_modify_qp);
	NEED(l, ibv_query_qp);
	NEED(l, ibv_destroy_qp);
	MAY(l, ibv_reg_mr_iova2);
	MAY(l, ibv_reg_dmabuf_mr);
	MAY(l, _ibv_query_gid_ex);
	MAY(l, ibv_is_fork_initialized);
	return NULL;
}

static const char *find_cm(struct functions *f, void *l)
{
	NEED(l, rdma_get_devices);
	NEED(l, rdma_free_devices);
	NEED(l, rdma_create_event_channel);
	NEED(l, rdma_destroy_event_channel);
	NEED(l, rdma_create_id);
	NEED(l, rdma_destroy_id);
	NEED(l, rdma_bind_addr);
	NEED(l, rdma_resolve_addr);
	NEED(l, rdma_resolve_route);
	NEED(l, rdma_create_qp);
	NEED(l, rdma_destroy_qp);
	NEED(l, rdma_listen);
	NEED(l, rdma_connect);
	NEED(l, rdma_accept);
	NEED(l, rdma_reject);
	NEED(l, rdma_disconnect);
	NEED(l, rdma_set_option);
	NEED(l, rdma_migrate_id);
	NEED(l, rdma_get_cm_event);
	NEED(l, rdma_ack_cm_event);
	return NULL;
}

/* open_library opens one and finds its functions. It stays open: providers leave handlers in the process. */
static const char *open_library(struct functions *f, const char *name, const char *(*functions)(struct functions *, void *))
{
	static __thread char whole[sizeof text + 64];
	void *l = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	const char *why = l == NULL ? dlerror() : functions(f, l);
	if (why == NULL)
		return NULL;
	if (strncmp(why, name, strlen(name)) == 0 && strncmp(why + strlen(name), ": ", 2) == 0)
		why += strlen(name) + 2;
	snprintf(whole, sizeof whole, "%s: %s", name, why);
	return whole;
}

static const char *open_both(struct functions *f, const char *ibverbs, const char *rdmacm)
{
	const char *why = open_library(f, ibverbs, find_verbs);
	return why != NULL ? why : open_library(f, rdmacm, find_cm);
}

static void load(void)
{
	struct functions f = {0};
	const char *why = open_both(&f, "libibverbs.so.1", "librdmacm.so.1");
	if (why == NULL)
		lib = f;
	else if ((wrong = strdup(why)) == NULL)
		wrong = "out of memory";
}

const char *sv_load(void)
{
	pthread_once(&loaded, load);
	return wrong;
}

const char *sv_try_load(const char *ibverbs, const char *rdmacm)
{
	struct functions f = {0};
	return open_both(&f, ibverbs, rdmacm);
}

/* code is the errno of a call that returns 0, an errno, a negative errno as some providers do, or -1 with errno set. */
static int code(int result)
{
	if (result == -1)
		return errno != 0 ? errno : EIO;
	return result < 0 ? -result : result;
}

int sv_fork(void)
{
	int e;
	if (lib.ibv_is_fork_initialized != NULL) {
		int now = lib.ibv_is_fork_initialized();
		if (now != ABI_FORK_DISABLED)
			return now;
	}
	/* Without it the library would mark parts of huge pages, which the kernel refuses. */
	setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
	e = lib.ibv_fork_init();
	return e == 0 ? ABI_FORK_ENABLED : -code(e);
}

void **sv_device_list(int *n)
{
	return lib.ibv_get_device_list(n);
}

struct sv_device sv_device_at(void **list, int i)
{
	return (struct sv_device){list[i], lib.ibv_get_device_guid(list[i])};
}

void sv_free_device_list(void **list)
{
	lib.ibv_free_device_list(list);
}

struct abi_context **sv_contexts(int *n)
{
	return lib.rdma_get_devices(n);
}

void sv_free_contexts(struct abi_context **list)
{
	lib.rdma_free_devices(list);
}

int sv_query_device(struct abi_context *context, struct abi_device_attr *attr)
{
	return code(lib.ibv_query_device(context, attr));
}

int sv_query_port(struct abi_context *context, int port, struct abi_port_attr *attr)
{
	memset(attr, 0, sizeof *attr); /* the library does not know the last fields */
	return code(lib.ibv_query_port(context, port, attr));
}

int sv_query_gid(struct abi_context *context, int port, int index, struct abi_gid_entry *entry)
{
	if (lib._ibv_query_gid_ex == NULL)
		return ENOSYS;
	memset(entry, 0, sizeof *entry);
	return code(lib._ibv_query_gid_ex(context, port, index, entry, 0, sizeof *entry));
}

int sv_async_event(struct abi_context *context, struct abi_async_event *event)
{
	return lib.ibv_get_async_event(context, event) != 0 ? code(-1) : 0;
}

void sv_ack_async_event(struct abi_async_event *event)
{
	lib.ibv_ack_async_event(event);
}

void *sv_alloc_pd(struct abi_context *context)
{
	return lib.ibv_alloc_pd(context);
}

struct abi_mr *sv_reg_mr(void *pd, uintptr_t addr, uint64_t length, uint32_t access)
{
	/* An older library or kernel does not know the optional rights, which change no result. */
	if ((access & ABI_ACCESS_OPTIONAL_RANGE) != 0 && lib.ibv_reg_mr_iova2 != NULL)
		return lib.ibv_reg_mr_iova2(pd, (void *)addr, length, addr, access);
	return lib.ibv_reg_mr(pd, (void *)addr, length, (int)(access & ~(uint32_t)ABI_ACCESS_OPTIONAL_RANGE));
}

struct abi_mr *sv_reg_dmabuf(void *pd, uint64_t offset, uint64_t length, uint64_t iova, int fd, uint32_t access)
{
	if (lib.ibv_reg_dmabuf_mr == NULL) {
		errno = ENOSYS;
		return NULL;
	}
	return lib.ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, (int)access);
}

struct abi_mw *sv_alloc_mw(struct abi_context *context, void *pd)
{
	if (context->ops.alloc_mw == NULL) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return context->ops.alloc_mw(pd, ABI_MW_TYPE_2);
}

static int dealloc_mw(struct abi_mw *mw)
{
	return ((struct abi_context *)mw->context)->ops.dealloc_mw(mw);
}

int sv_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

struct abi_comp_channel *sv_create_channel(struct abi_context *context)
{
	struct abi_comp_channel *c = lib.ibv_create_comp_channel(context);
	int e = c == NULL ? 0 : sv_nonblocking(c->fd);
	if (e != 0) {
		lib.ibv_destroy_comp_channel(c);
		errno = e;
		return NULL;
	}
	return c;
}

struct abi_cq *sv_create_cq(struct abi_context *context, int entries, void *channel, int vector)
{
	return lib.ibv_create_cq(context, entries, NULL, channel, vector);
}

struct abi_cq *sv_cq_event(struct abi_comp_channel *channel)
{
	struct abi_cq *cq;
	void *unused;
	return lib.ibv_get_cq_event(channel, &cq, &unused) == 0 ? cq : NULL;
}

void sv_ack_cq_events(struct abi_cq *cq, unsigned int n)
{
	lib.ibv_ack_cq_events(cq, n);
}

int sv_arm(uintptr_t of, int solicited_only)
{
	struct abi_cq *cq = (struct abi_cq *)of;
	return code(cq->context->ops.req_notify_cq(cq, solicited_only));
}

int sv_poll(uintptr_t of, uintptr_t wc, int n)
{
	struct abi_cq *cq = (struct abi_cq *)of;
	int polled = cq->context->ops.poll_cq(cq, n, (struct abi_wc *)wc);
	return polled >= 0 ? polled : -code(polled);
}

struct sv_qp *sv_create_qp(void *pd, struct abi_cm_id *id, const struct abi_qp_init_attr *asked)
{
	struct abi_qp_init_attr attr = *asked;
	struct abi_qp_attr given;
	struct sv_qp *q = calloc(1, sizeof *q);
	if (q == NULL)
		return NULL;
	if (id == NULL)
		q->qp = lib.ibv_create_qp(pd, &attr);
	else if (lib.rdma_create_qp(id, pd, &attr) == 0)
		q->qp = id->qp;
	if (q->qp == NULL) {
		int e = errno;
		free(q);
		errno = e;
		return NULL;
	}
	q->id = id;
	/* Some providers leave attr as it was asked for. */
	q->cap = sv_query_qp(q, &given, ABI_QP_CAP) == 0 ? given.cap : attr.cap;
	return q;
}

int sv_modify_qp(struct sv_qp *q, struct abi_qp_attr *attr, int mask)
{
	return code(lib.ibv_modify_qp(q->qp, attr, mask));
}

int sv_query_qp(struct sv_qp *q, struct abi_qp_attr *attr, int mask)
{
	struct abi_qp_init_attr init;
	memset(attr, 0, sizeof *attr);
	return code(lib.ibv_query_qp(q->qp, attr, mask, &init));
}

int sv_destroy_qp(struct sv_qp *q)
{
	if (q->id != NULL) {
		lib.rdma_destroy_qp(q->id);
	} else {
		int e = code(lib.ibv_destroy_qp(q->qp));
		if (e != 0)
			return e;
	}
	free(q);
	return 0;
}

/* The functions of libmlx5 that matter here. */
static struct {
	int (*is_supported)(void *device);
	int (*modify_qp_lag_port)(void *qp, uint8_t port);
} mlx5;

static pthread_once_t mlx5_loaded = PTHREAD_ONCE_INIT;

static void load_mlx5(void)
{
	void *l = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
	if (l != NULL && find(l, "mlx5dv_is_supported", &mlx5.is_supported))
		find(l, "mlx5dv_modify_qp_lag_port", &mlx5.modify_qp_lag_port);
}

int sv_lag_port(struct sv_qp *q, uint8_t port)
{
	pthread_once(&mlx5_loaded, load_mlx5);
	if (mlx5.modify_qp_lag_port == NULL)
		return ENOSYS;
	if (!mlx5.is_supported(q->qp->context->device))
		return EOPNOTSUPP;
	return code(mlx5.modify_qp_lag_port(q->qp, port));
}

/* add: one thread writes a count, so it needs no locked instruction. */
static void add(uint64_t *count, uint64_t n)
{
	__atomic_store_n(count, *count + n, __ATOMIC_RELAXED);
}

int64_t sv_post_send(uintptr_t to, uintptr_t requests)
{
	struct sv_qp *q = (struct sv_qp *)to;
	struct sv_send_chain *chain = (struct sv_send_chain *)requests;
	struct abi_send_wr *bad = NULL, *wr;
	struct sv_counts *c = &q->counts;
	int64_t posted = 0;
	int e = code(q->qp->context->ops.post_send(q->qp, chain->first, &bad));
	if (e == 0) {
		add(&c->doorbells, 1);
		add(&c->requests, chain->count);
		add(&c->signaled, chain->signaled);
		add(&c->reads, chain->reads);
		add(&c->bytes, chain->bytes);
		return (int64_t)chain->count << 32;
	}
	for (wr = bad == NULL ? NULL : chain->first; wr != NULL && wr != bad; wr = (struct abi_send_wr *)wr->next) {
		posted++;
		add(&c->signaled, (wr->send_flags & ABI_SEND_SIGNALED) != 0);
		add(&c->reads, wr->opcode == ABI_WR_RDMA_READ);
		for (int i = 0; i < wr->num_sge; i++)
			add(&c->bytes, ((struct abi_sge *)wr->sg_list)[i].length);
	}
	add(&c->doorbells, posted > 0);
	add(&c->requests, (uint64_t)posted);
	return posted << 32 | e;
}

int64_t sv_post_recv(uintptr_t to, uintptr_t requests)
{
	struct sv_qp *q = (struct sv_qp *)to;
	struct sv_recv_chain *chain = (struct sv_recv_chain *)requests;
	struct abi_recv_wr *bad = NULL, *wr;
	int64_t posted = 0;
	int e = code(q->qp->context->ops.post_recv(q->qp, chain->first, &bad));
	if (e == 0)
		posted = (int64_t)chain->count;
	else
		for (wr = bad == NULL ? NULL : chain->first; wr != NULL && wr != bad; wr = (struct abi_recv_wr *)wr->next)
			posted++;
	add(&q->counts.receive_doorbells, posted > 0);
	add(&q->counts.receives, (uint64_t)posted);
	return posted << 32 | e;
}

struct abi_event_channel *sv_create_event_channel(void)
{
	struct abi_event_channel *c = lib.rdma_create_event_channel();
	int e = c == NULL ? 0 : sv_nonblocking(c->fd);
	if (e != 0) {
		lib.rdma_destroy_event_channel(c);
		errno = e;
		return NULL;
	}
	return c;
}

struct abi_cm_id *sv_create_id(struct abi_event_channel *channel)
{
	struct abi_cm_id *id;
	return lib.rdma_create_id(channel, &id, NULL, ABI_RDMA_PS_TCP) == 0 ? id : NULL;
}

int sv_bind(struct abi_cm_id *id, const void *address)
{
	return code(lib.rdma_bind_addr(id, address));
}

int sv_resolve_addr(struct abi_cm_id *id, const void *source, const void *destination, int ms)
{
	return code(lib.rdma_resolve_addr(id, source, destination, ms));
}

int sv_resolve_route(struct abi_cm_id *id, int ms)
{
	return code(lib.rdma_resolve_route(id, ms));
}

int sv_listen(struct abi_cm_id *id, int backlog)
{
	return code(lib.rdma_listen(id, backlog));
}

int sv_connect(struct abi_cm_id *id, struct abi_conn_param param, const void *private_data)
{
	param.private_data = private_data;
	return code(lib.rdma_connect(id, &param));
}

int sv_accept(struct abi_cm_id *id, struct abi_conn_param param, const void *private_data)
{
	param.private_data = private_data;
	return code(lib.rdma_accept(id, &param));
}

int sv_reject(struct abi_cm_id *id, const void *private_data, uint8_t length)
{
	return code(lib.rdma_reject(id, private_data, length));
}

int sv_disconnect(struct abi_cm_id *id)
{
	return code(lib.rdma_disconnect(id));
}

int sv_set_option(struct abi_cm_id *id, int option, int value)
{
	uint8_t byte = (uint8_t)value;
	int number = option == ABI_RDMA_OPTION_ID_REUSEADDR; /* the others are bytes */
	return code(lib.rdma_set_option(id, ABI_RDMA_OPTION_ID, option, number ? (void *)&value : &byte, number ? sizeof value : 1));
}

int sv_migrate(struct abi_cm_id *id, struct abi_event_channel *channel)
{
	return code(lib.rdma_migrate_id(id, channel));
}

struct abi_cm_event *sv_cm_event(struct abi_event_channel *channel, struct sv_cm_event *copy)
{
	struct abi_cm_event *event;
	if (lib.rdma_get_cm_event(channel, &event) != 0)
		return NULL;
	copy->id = event->id;
	copy->listen_id = event->listen_id;
	copy->event = event->event;
	copy->status = event->status;
	copy->conn = event->conn;
	copy->conn.private_data = NULL;
	if (event->conn.private_data == NULL)
		copy->conn.private_data_len = 0;
	else
		memcpy(copy->private_data, event->conn.private_data, copy->conn.private_data_len);
	return event;
}

void sv_ack_cm_event(struct abi_cm_event *event)
{
	lib.rdma_ack_cm_event(event);
}

int sv_destroy(enum sv_kind kind, void *object)
{
	switch (kind) {
	case SV_PD:
		return code(lib.ibv_dealloc_pd(object));
	case SV_MR:
		return code(lib.ibv_dereg_mr(object));
	case SV_MW:
		return code(dealloc_mw(object));
	case SV_CHANNEL:
		return code(lib.ibv_destroy_comp_channel(object));
	case SV_CQ:
		return code(lib.ibv_destroy_cq(object));
	case SV_EVENT_CHANNEL:
		lib.rdma_destroy_event_channel(object);
		return 0;
	case SV_ID:
		return code(lib.rdma_destroy_id(object));
	}
	return EINVAL;
}
