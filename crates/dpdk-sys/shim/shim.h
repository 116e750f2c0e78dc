/*
 * The C interface to DPDK: fixed-width arguments, opaque pointers, one call per burst.
 *
 * No DPDK header is included here, so that the bindings do not depend on DPDK's version. Differences
 * between versions stay in shim.c. Unless stated otherwise, functions that return int return 0 or more on
 * success and a negative errno on failure.
 */
#ifndef NETLATHE_SHIM_H
#define NETLATHE_SHIM_H

#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* Offsets in struct rte_mbuf of the fields that Rust reads without a call. Asserted in shim.c. */
enum {
	SHIM_MBUF_BUF_ADDR = 0,
	SHIM_MBUF_DATA_OFF = 16,
	SHIM_MBUF_REFCNT = 18,
	SHIM_MBUF_NB_SEGS = 20,
	SHIM_MBUF_PORT = 22,
	SHIM_MBUF_OL_FLAGS = 24,
	SHIM_MBUF_PKT_LEN = 36,
	SHIM_MBUF_DATA_LEN = 40,
	SHIM_MBUF_USR = 44, /* hash.usr, free for the frame's owner */
	SHIM_MBUF_WAITED = 48, /* hash.fdir.hi: ns that a received frame waited in its port */
	SHIM_MBUF_BUF_LEN = 54,
	SHIM_MBUF_STAGE_TIME = 72, /* tx_offload, unused without offload flags: a time of the engine in ps */
	SHIM_HEADROOM = 128,
};

struct shim_port_config {
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t rx_descriptors; /* adjusted to the driver's limits; written back */
	uint16_t tx_descriptors;
	uint16_t mtu;            /* 0: the driver's default */
	uint16_t launch_time;    /* 1: frames may carry a launch time */
};

struct shim_port_info {
	char driver[64];
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	uint32_t interface_index; /* 0: none */
	uint32_t max_rx_packet;   /* bytes */
	uint32_t speed_mbps;      /* 0: unknown */
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t min_mtu;
	uint16_t max_mtu;
	uint16_t mtu;
	uint8_t mac[6];
	uint8_t link_up;
	uint8_t send_on_timestamp;
	uint8_t reserved[6];
};

struct shim_port_stats {
	uint64_t ipackets, opackets, ibytes, obytes, imissed, ierrors, oerrors, rx_nombuf;
};

struct shim_xstat {
	char name[64];
	uint64_t value;
};

/* The layout as the C compiler sees it, for the test that compares it with Rust's. */
uint32_t shim_sizeof_port_config(void);
uint32_t shim_sizeof_port_info(void);
uint32_t shim_sizeof_port_stats(void);
uint32_t shim_sizeof_xstat(void);
uint32_t shim_offset_info_mac(void);

/* EAL and its log. The log goes to a ring in memory, and with `echo` also to stderr. */
int shim_log_capture(int echo);
/* Redirects the messages of libbpf and libxdp to the log. Call after EAL has loaded its drivers. Does nothing if no
 * driver has loaded these libraries. */
void shim_log_capture_xdp(void);
uint64_t shim_log_written(void);
uint32_t shim_log_since(uint64_t mark, char *into, uint32_t room);
int shim_eal_init(int argc, char **argv, int silent); /* silent: discards stdout and stderr during the call */
const char *shim_version(void);
const char *shim_strerror(int error);
int shim_has_huge_pages(void);
int shim_addresses_are_virtual(void); /* 1: devices use virtual addresses, which an IOMMU translates */
int shim_thread_register(void); /* 0: was registered already, 1: newly registered */
void shim_thread_unregister(void);
uint64_t shim_tsc(void);
uint64_t shim_tsc_hz(void);

/*
 * Pools. data_room excludes the headroom. With `dense` and without huge pages, buffers may cross pages and
 * have no IOVA for a NIC. NULL on failure, with the errno in *error.
 */
struct rte_mempool *shim_pool_create(const char *name, uint32_t frames, uint32_t cache,
				     uint16_t data_room, int dense, int *error);
uint32_t shim_pool_available(struct rte_mempool *pool);
uint32_t shim_pool_in_use(struct rte_mempool *pool);
/* All or none: 0, or -ENOENT when fewer than count are left. */
int shim_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **into, uint32_t count);
/* Like shim_alloc_bulk, but frames have the given length and keep the previous contents of their buffers. */
int shim_take_bulk(struct rte_mempool *pool, struct rte_mbuf **into, uint32_t count, uint16_t length);
/* Frees whole chains, from any mixture of pools. */
void shim_free_bulk(struct rte_mbuf **frames, uint32_t count);
/* A copy of a whole frame in a buffer of the same pool, or NULL when the pool is empty. */
struct rte_mbuf *shim_copy(const struct rte_mbuf *frame);

/* Registers the launch time field. Returns the offset in struct rte_mbuf of a uint64_t in ticks of the NIC's clock, and
 * the bit of ol_flags that marks the field as set. */
int shim_launch_register(int32_t *offset, uint64_t *flag);

/* Devices and ports. */
int shim_attach(const char *bus, const char *name, const char *arguments);
int shim_detach(const char *bus, const char *name);
uint32_t shim_port_count(void);
int shim_port_find(const char *name); /* returns the port number */
/* Creates a loopback port with a ring of exactly `slots` slots per queue. Returns the port number. The rings stay
 * allocated after the port is closed. */
enum { SHIM_RINGS = 16 };
int shim_ring_port(const char *name, uint32_t slots, uint16_t queues);
int shim_port_configure(uint16_t port, struct shim_port_config *config, struct rte_mempool *pool);
int shim_port_start(uint16_t port);
int shim_port_stop(uint16_t port);
int shim_port_close(uint16_t port);
int shim_port_info(uint16_t port, struct shim_port_info *info);
/* Reads the NIC's clock, in its own ticks. */
int shim_port_clock(uint16_t port, uint64_t *ticks);
int shim_port_promiscuous(uint16_t port, int on);
int shim_port_stats(uint16_t port, struct shim_port_stats *stats);
/* Returns the number of counters, and writes up to `room` of them. */
int shim_port_xstats(uint16_t port, struct shim_xstat *into, uint32_t room);

/* The packet path. */
uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **into, uint16_t room);
uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count);

/* Event devices: frames go to one of several workers and then to the collector. Frames of one flow are with one worker
 * at a time and stay in order. Port 0 is the feeder, ports 1 to `workers` are the workers, and the next port is the
 * collector. */
enum { SHIM_EVENT_BURST = 64 };

struct shim_event_device {
	int32_t service; /* to run with shim_event_schedule; -1 if the device schedules by itself */
	uint32_t flows;  /* number of flows that the device distinguishes */
	uint8_t device;
	uint8_t reserved[3];
};

uint32_t shim_sizeof_event_device(void);
/* Sets up and starts the named device. */
int shim_event_open(const char *name, uint8_t workers, struct shim_event_device *out);
int shim_event_close(uint8_t device); /* frees the frames inside */
int shim_event_schedule(int32_t service);
/* Feed and pass return the number of frames taken, from the first on. Take returns the number of frames written. */
uint16_t shim_event_feed(uint8_t device, struct rte_mbuf **frames, const uint32_t *flows, uint16_t count);
uint16_t shim_event_take(uint8_t device, uint8_t port, struct rte_mbuf **frames, uint32_t *flows, uint16_t room);
/* Pass at most the frames of the port's last take. The next take gives up the rest. */
uint16_t shim_event_pass(uint8_t device, uint8_t port, struct rte_mbuf **frames, const uint32_t *flows,
			 uint16_t count);
void shim_event_flush(uint8_t device, uint8_t port);

#endif
