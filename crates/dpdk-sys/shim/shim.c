/* The C interface to DPDK. Differences between DPDK 22.11 and 25.11 stay in this file. */

#define _GNU_SOURCE
/* For rte_eth_read_clock, which is still experimental in DPDK 25.11. */
#define ALLOW_EXPERIMENTAL_API
#include "shim.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "netlathe needs DPDK 22.11 or later"
#endif

/* rte_strerror and the per-thread rte_errno are DPDK's; everything else reports a negative errno. */
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == SHIM_MBUF_BUF_ADDR, "buf_addr moved");
_Static_assert(offsetof(struct rte_mbuf, data_off) == SHIM_MBUF_DATA_OFF, "data_off moved");
_Static_assert(offsetof(struct rte_mbuf, refcnt) == SHIM_MBUF_REFCNT, "refcnt moved");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == SHIM_MBUF_NB_SEGS, "nb_segs moved");
_Static_assert(offsetof(struct rte_mbuf, port) == SHIM_MBUF_PORT, "port moved");
_Static_assert(offsetof(struct rte_mbuf, ol_flags) == SHIM_MBUF_OL_FLAGS, "ol_flags moved");
_Static_assert(offsetof(struct rte_mbuf, pkt_len) == SHIM_MBUF_PKT_LEN, "pkt_len moved");
_Static_assert(offsetof(struct rte_mbuf, data_len) == SHIM_MBUF_DATA_LEN, "data_len moved");
_Static_assert(offsetof(struct rte_mbuf, hash.usr) == SHIM_MBUF_USR, "hash.usr moved");
_Static_assert(offsetof(struct rte_mbuf, hash.fdir.hi) == SHIM_MBUF_WAITED, "hash.fdir.hi moved");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == SHIM_MBUF_BUF_LEN, "buf_len moved");
_Static_assert(offsetof(struct rte_mbuf, tx_offload) == SHIM_MBUF_STAGE_TIME, "tx_offload moved");
_Static_assert(RTE_PKTMBUF_HEADROOM == SHIM_HEADROOM, "DPDK built with another headroom");

uint32_t shim_sizeof_port_config(void) { return sizeof(struct shim_port_config); }
uint32_t shim_sizeof_port_info(void) { return sizeof(struct shim_port_info); }
uint32_t shim_sizeof_port_stats(void) { return sizeof(struct shim_port_stats); }
uint32_t shim_sizeof_xstat(void) { return sizeof(struct shim_xstat); }
uint32_t shim_sizeof_event_device(void) { return sizeof(struct shim_event_device); }
uint32_t shim_offset_info_mac(void) { return offsetof(struct shim_port_info, mac); }

/* ---- log: the last LOG_ROOM bytes, written by any of EAL's threads ---- */

#define LOG_ROOM 16384u
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_ring[LOG_ROOM];
static uint64_t log_total;
static int log_echo;

/* Standard error may be a stopped terminal or a pipe that is not read. The log must not block a thread on it: it is
 * written without blocking, and waits once. A descriptor of our own leaves that of other processes as it is. A socket
 * cannot be opened so; it takes PIPE_BUF bytes when it is writable. */
static int log_descriptor = -1;

static void log_open(void)
{
	if (log_descriptor < 0)
		log_descriptor = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_APPEND | O_CLOEXEC | O_NOCTTY);
	if (log_descriptor < 0)
		log_descriptor = STDERR_FILENO;
}

static void log_to_stderr(const char *text, size_t length)
{
	enum { PATIENCE_MS = 100 };
	static atomic_bool stalled;
	while (length > 0) {
		struct pollfd space = { .fd = log_descriptor, .events = POLLOUT };
		int ready = poll(&space, 1, atomic_load(&stalled) ? 0 : PATIENCE_MS);
		if (ready < 0 && errno == EINTR)
			continue;
		ssize_t written = -1;
		if (ready > 0 && (space.revents & POLLOUT)) {
			written = write(log_descriptor, text, length < PIPE_BUF ? length : PIPE_BUF);
			if (written < 0 && errno == EINTR)
				continue;
		}
		atomic_store(&stalled, written <= 0);
		if (written <= 0)
			return;
		text += written;
		length -= (size_t)written;
	}
}

static ssize_t log_write(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	pthread_mutex_lock(&log_lock);
	for (size_t i = 0; i < length; i++)
		log_ring[log_total++ % LOG_ROOM] = text[i];
	pthread_mutex_unlock(&log_lock);
	if (log_echo)
		log_to_stderr(text, length);
	return (ssize_t)length;
}

int shim_log_capture(int echo)
{
	static FILE *stream;
	log_echo = echo;
	if (echo)
		log_open();
	if (stream == NULL) {
		cookie_io_functions_t functions = { .write = log_write };
		stream = fopencookie(NULL, "w", functions);
		if (stream == NULL)
			return -errno;
		setvbuf(stream, NULL, _IOLBF, 1024);
	}
	return rte_openlog_stream(stream);
}

/* By default libbpf and libxdp print to stderr. Both accept a print function of this type. */
static int xdp_print(int level, const char *format, va_list arguments)
{
	enum { WARN, INFO };
	char text[512];
	int length = level > INFO ? 0 : vsnprintf(text, sizeof(text), format, arguments);
	if (length > 0)
		log_write(NULL, text, (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
	return length;
}

void shim_log_capture_xdp(void)
{
	static const char *const setters[][2] = {
		{ "libbpf.so.1", "libbpf_set_print" },
		{ "libbpf.so.0", "libbpf_set_print" },
		{ "libxdp.so.1", "libxdp_set_print" },
	};
	for (size_t i = 0; i < sizeof(setters) / sizeof(setters[0]); i++) {
		/* Only if a driver has loaded the library: netlathe itself depends on neither. */
		void *library = dlopen(setters[i][0], RTLD_LAZY | RTLD_NOLOAD);
		if (library == NULL)
			continue;
		typedef int (*print)(int, const char *, va_list);
		print (*set)(print) = (print (*)(print))(uintptr_t)dlsym(library, setters[i][1]);
		if (set != NULL)
			(void)set(xdp_print);
		dlclose(library);
	}
}

uint64_t shim_log_written(void)
{
	pthread_mutex_lock(&log_lock);
	uint64_t total = log_total;
	pthread_mutex_unlock(&log_lock);
	return total;
}

uint32_t shim_log_since(uint64_t mark, char *into, uint32_t room)
{
	uint32_t count = 0;
	pthread_mutex_lock(&log_lock);
	uint64_t from = mark;
	if (log_total > LOG_ROOM && from < log_total - LOG_ROOM)
		from = log_total - LOG_ROOM;
	if (log_total > room && from < log_total - room)
		from = log_total - room;
	while (from < log_total)
		into[count++] = log_ring[from++ % LOG_ROOM];
	pthread_mutex_unlock(&log_lock);
	return count;
}

/* ---- EAL ---- */

/* Redirects a descriptor to /dev/null. Returns a duplicate of the original, or -1. */
static int shut(int fd)
{
	int saved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (saved >= 0 && null >= 0)
		(void)dup2(null, fd);
	if (null >= 0)
		close(null);
	return saved;
}

static void reopen(int saved, int fd)
{
	if (saved < 0)
		return;
	(void)dup2(saved, fd);
	close(saved);
}

/* Removes the empty runtime folders of processes that were killed during their start. The folder names differ from ours
 * only in the process ID. */
static void sweep_runtime_dirs(const char *ours)
{
	char path[PATH_MAX];
	size_t stem = strlen(ours);
	while (stem > 0 && isdigit((unsigned char)ours[stem - 1]))
		stem--;
	const char *name = strrchr(ours, '/');
	if (name == NULL || ours[stem] == '\0' || stem >= sizeof(path) || ours + stem <= name)
		return;
	snprintf(path, sizeof(path), "%.*s", (int)(name - ours), ours);
	DIR *folder = opendir(path);
	if (folder == NULL)
		return;
	size_t prefix = (size_t)(ours + stem - name - 1);
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
		char *end = NULL;
		if (strncmp(entry->d_name, name + 1, prefix) != 0)
			continue;
		long process = strtol(entry->d_name + prefix, &end, 10);
		if (process <= 0 || *end != '\0' || kill((pid_t)process, 0) == 0 || errno != ESRCH)
			continue;
		(void)!unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR);
	}
	closedir(folder);
}

int shim_eal_init(int argc, char **argv, int silent)
{
	int out = -1, err = -1;
	fflush(stdout);
	if (silent) {
		out = shut(STDOUT_FILENO);
		err = shut(STDERR_FILENO);
	}
	int used = rte_eal_init(argc, argv);
	int rc = used >= 0 ? used : rte_errno > 0 ? -rte_errno : -EINVAL;
	/* EAL leaves a runtime folder for each process. It is empty, because nothing is shared. */
	(void)!rmdir(rte_eal_get_runtime_dir());
	sweep_runtime_dirs(rte_eal_get_runtime_dir());
	fflush(stdout);
	reopen(out, STDOUT_FILENO);
	reopen(err, STDERR_FILENO);
	return rc;
}

const char *shim_version(void) { return rte_version(); }
const char *shim_strerror(int error) { return rte_strerror(error); }

int shim_has_huge_pages(void) { return rte_eal_has_hugepages(); }
int shim_addresses_are_virtual(void) { return rte_eal_iova_mode() == RTE_IOVA_VA; }

int shim_thread_register(void)
{
	/* DPDK would give a registered thread a second lcore ID and lose the first. */
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	if (rte_thread_register() == 0)
		return 1;
	return rte_errno > 0 ? -rte_errno : -ENOMEM;
}

void shim_thread_unregister(void) { rte_thread_unregister(); }
uint64_t shim_tsc(void) { return rte_rdtsc(); }
uint64_t shim_tsc_hz(void) { return rte_get_tsc_hz(); }

/* ---- pools ---- */

/*
 * Like rte_pktmbuf_pool_create, but optionally dense. Without huge pages, DPDK does not let a buffer cross
 * a page, which leaves gaps. net_af_xdp computes the length of its memory without the gaps and would lose
 * every frame whose buffer lies beyond that length. The flag for dense memory leaves buffers without an
 * IOVA, so a NIC would access address 0. Use it for software drivers only.
 */
struct rte_mempool *shim_pool_create(const char *name, uint32_t frames, uint32_t cache,
				     uint16_t data_room, int dense, int *error)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = (uint16_t)(data_room + RTE_PKTMBUF_HEADROOM),
	};
	unsigned int flags = dense && !rte_eal_has_hugepages() ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
	unsigned int element = (unsigned int)sizeof(struct rte_mbuf) + private.mbuf_data_room_size;
	struct rte_mempool *pool = rte_mempool_create_empty(name, frames, element, cache, sizeof(private),
							    SOCKET_ID_ANY, flags);
	int rc = -rte_errno;

	if (pool != NULL)
		rc = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (pool != NULL && rc == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		rc = rte_mempool_populate_default(pool);
	}
	if (pool == NULL || rc < 0) {
		rte_mempool_free(pool);
		*error = rc < 0 ? -rc : ENOMEM;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	*error = 0;
	return pool;
}

uint32_t shim_pool_available(struct rte_mempool *pool) { return rte_mempool_avail_count(pool); }
uint32_t shim_pool_in_use(struct rte_mempool *pool) { return rte_mempool_in_use_count(pool); }

int shim_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **into, uint32_t count)
{
	int rc = 0;
	if (count == 1) /* inlined for one */
		rc = (into[0] = rte_pktmbuf_alloc(pool)) == NULL ? -ENOENT : 0;
	else
		rc = rte_pktmbuf_alloc_bulk(pool, into, count);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		into[i]->hash.fdir.hi = 0; /* SHIM_MBUF_WAITED: DPDK leaves it as it was */
	return rc;
}

int shim_take_bulk(struct rte_mempool *pool, struct rte_mbuf **into, uint32_t count, uint16_t length)
{
	int rc = rte_mempool_get_bulk(pool, (void **)into, count);
	if (rc != 0)
		return rc;
	/* A free mbuf has one segment and a reference count of 1 (rte_mbuf.h). These fields are in one cache line. */
	for (uint32_t i = 0; i < count; i++) {
		into[i]->data_off = RTE_PKTMBUF_HEADROOM;
		into[i]->ol_flags = 0;
		into[i]->data_len = length;
		into[i]->pkt_len = length;
		into[i]->hash.fdir.hi = 0; /* SHIM_MBUF_WAITED */
	}
	return 0;
}

void shim_free_bulk(struct rte_mbuf **frames, uint32_t count)
{
	if (count == 1)
		rte_pktmbuf_free(frames[0]); /* inlined */
	else
		rte_pktmbuf_free_bulk(frames, count);
}

int shim_launch_register(int32_t *offset, uint64_t *flag)
{
	int at = 0;
	if (rte_mbuf_dyn_tx_timestamp_register(&at, flag) != 0)
		return rte_errno > 0 ? -rte_errno : -ENOMEM;
	*offset = at;
	return 0;
}

struct rte_mbuf *shim_copy(const struct rte_mbuf *frame)
{
	return rte_pktmbuf_copy(frame, frame->pool, 0, UINT32_MAX);
}

/* ---- devices and ports ---- */

int shim_attach(const char *bus, const char *name, const char *arguments)
{
	return rte_eal_hotplug_add(bus, name, arguments);
}

int shim_detach(const char *bus, const char *name) { return rte_eal_hotplug_remove(bus, name); }
uint32_t shim_port_count(void) { return rte_eth_dev_count_avail(); }

int shim_port_find(const char *name)
{
	uint16_t port;
	int rc = rte_eth_dev_get_port_by_name(name, &port);
	return rc == 0 ? port : rc;
}

int shim_ring_port(const char *name, uint32_t slots, uint16_t queues)
{
	struct rte_ring *rings[SHIM_RINGS];
	char ring[RTE_RING_NAMESIZE];
	if (queues == 0 || queues > SHIM_RINGS)
		return -EINVAL;
	for (uint16_t q = 0; q < queues; q++) {
		snprintf(ring, sizeof(ring), "%s_%u", name, q);
		rings[q] = rte_ring_create(ring, slots, SOCKET_ID_ANY,
					   RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
		if (rings[q] == NULL)
			return rte_errno != 0 ? -rte_errno : -ENOMEM;
	}
	int rc = rte_eth_from_rings(name, rings, queues, rings, queues,
				    (unsigned int)rings[0]->memzone->socket_id);
	return rc < 0 ? (rte_errno != 0 ? -rte_errno : -ENODEV) : rc;
}

int shim_port_configure(uint16_t port, struct shim_port_config *config, struct rte_mempool *pool)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	int rc = rte_eth_dev_info_get(port, &info);
	if (rc != 0)
		return rc;

	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = config->mtu;
	if (config->rx_queues > 1 && info.flow_type_rss_offloads != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	}
	if (config->launch_time)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP;
	rc = rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
	if (rc != 0)
		return rc;
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &config->rx_descriptors, &config->tx_descriptors);
	if (rc != 0)
		return rc;
	for (uint16_t q = 0; q < config->rx_queues; q++) {
		struct rte_eth_rxconf rx = info.default_rxconf;
		rx.offloads = conf.rxmode.offloads;
		rc = rte_eth_rx_queue_setup(port, q, config->rx_descriptors, SOCKET_ID_ANY, &rx, pool);
		if (rc != 0)
			return rc;
	}
	for (uint16_t q = 0; q < config->tx_queues; q++) {
		struct rte_eth_txconf tx = info.default_txconf;
		tx.offloads = conf.txmode.offloads;
		rc = rte_eth_tx_queue_setup(port, q, config->tx_descriptors, SOCKET_ID_ANY, &tx);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int shim_port_start(uint16_t port) { return rte_eth_dev_start(port); }
int shim_port_stop(uint16_t port) { return rte_eth_dev_stop(port); }
int shim_port_close(uint16_t port) { return rte_eth_dev_close(port); }

int shim_port_info(uint16_t port, struct shim_port_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_eth_link link;
	struct rte_ether_addr mac;
	int rc = rte_eth_dev_info_get(port, &info);
	if (rc != 0)
		return rc;

	memset(out, 0, sizeof(*out));
	if (info.driver_name != NULL)
		snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
	out->rx_offloads = info.rx_offload_capa;
	out->tx_offloads = info.tx_offload_capa;
	out->interface_index = info.if_index;
	out->max_rx_packet = info.max_rx_pktlen;
	out->max_rx_queues = info.max_rx_queues;
	out->max_tx_queues = info.max_tx_queues;
	out->min_mtu = info.min_mtu;
	out->max_mtu = info.max_mtu;
	out->send_on_timestamp = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP) != 0;
	(void)rte_eth_dev_get_mtu(port, &out->mtu);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	memset(&link, 0, sizeof(link));
	if (rte_eth_link_get_nowait(port, &link) == 0) {
		out->link_up = link.link_status != 0;
		out->speed_mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	}
	return 0;
}

int shim_port_clock(uint16_t port, uint64_t *ticks)
{
	return rte_eth_read_clock(port, ticks);
}

int shim_port_promiscuous(uint16_t port, int on)
{
	return on ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
}

int shim_port_stats(uint16_t port, struct shim_port_stats *out)
{
	struct rte_eth_stats stats;
	memset(&stats, 0, sizeof(stats));
	int rc = rte_eth_stats_get(port, &stats);
	if (rc != 0)
		return rc;
	*out = (struct shim_port_stats){
		.ipackets = stats.ipackets, .opackets = stats.opackets,
		.ibytes = stats.ibytes, .obytes = stats.obytes,
		.imissed = stats.imissed, .ierrors = stats.ierrors,
		.oerrors = stats.oerrors, .rx_nombuf = stats.rx_nombuf,
	};
	return 0;
}

int shim_port_xstats(uint16_t port, struct shim_xstat *into, uint32_t room)
{
	int count = rte_eth_xstats_get_names(port, NULL, 0);
	if (count <= 0)
		return count;
	struct rte_eth_xstat_name *names = calloc((size_t)count, sizeof(*names));
	struct rte_eth_xstat *values = calloc((size_t)count, sizeof(*values));
	int rc = -ENOMEM;
	if (names != NULL && values != NULL) {
		int named = rte_eth_xstats_get_names(port, names, (unsigned int)count);
		int valued = named < 0 ? named : rte_eth_xstats_get(port, values, (unsigned int)count);
		rc = valued;
		/* If the count exceeds `room`, it has grown since the caller's last call, and the caller retries. */
		for (int i = 0; valued <= count && i < valued && (uint32_t)i < room; i++) {
			if (values[i].id >= (uint64_t)count)
				continue;
			snprintf(into[i].name, sizeof(into[i].name), "%s", names[values[i].id].name);
			into[i].value = values[i].value;
		}
	}
	free(names);
	free(values);
	return rc;
}

/* ---- the packet path ---- */

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **into, uint16_t room)
{
	return rte_eth_rx_burst(port, queue, into, room);
}

uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, frames, count);
}
