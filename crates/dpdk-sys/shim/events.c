/*
 * DPDK's event devices, in the one topology that is needed: feeder -> atomic queue -> workers -> queue ->
 * collector. An event is a frame and its flow.
 */
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_eventdev.h>
#include <rte_mbuf.h>
#include <rte_service.h>

enum { TO_WORKERS, TO_COLLECTOR, QUEUES };
enum { FEEDER, FIRST_WORKER };

/* Frees the frames that are still inside when the device stops. */
static void flush(uint8_t device, struct rte_event event, void *arg)
{
	(void)device;
	(void)arg;
	rte_pktmbuf_free(event.mbuf);
}

static int queue(uint8_t device, uint8_t number, uint32_t flows)
{
	struct rte_event_queue_conf conf;
	int rc = rte_event_queue_default_conf_get(device, number, &conf);
	if (rc != 0)
		return rc;
	conf.event_queue_cfg = 0;
	conf.schedule_type = RTE_SCHED_TYPE_ATOMIC;
	conf.nb_atomic_flows = flows;
	return rte_event_queue_setup(device, number, &conf);
}

static int port(uint8_t device, uint8_t number, int links_to)
{
	struct rte_event_port_conf conf;
	int rc = rte_event_port_default_conf_get(device, number, &conf);
	if (rc == 0)
		rc = rte_event_port_setup(device, number, &conf);
	if (rc != 0 || links_to < 0)
		return rc;
	uint8_t from = (uint8_t)links_to;
	rc = rte_event_port_link(device, number, &from, NULL, 1);
	return rc == 1 ? 0 : rte_errno > 0 ? -rte_errno : -EINVAL;
}

int shim_event_open(const char *name, uint8_t workers, struct shim_event_device *out)
{
	struct rte_event_dev_info info;
	struct rte_event_dev_config conf;
	memset(out, 0, sizeof(*out));
	int found = rte_event_dev_get_dev_id(name);
	if (found < 0)
		return found;
	uint8_t device = (uint8_t)found;
	int rc = rte_event_dev_info_get(device, &info);
	if (rc != 0)
		return rc;
	if (info.max_event_ports < workers + 2 || info.max_event_queues < QUEUES)
		return -ENOSPC;
	/* Hardware has 16 bits for a flow number, the event struct 20. With more users than that, users share flows. */
	uint32_t most = 1u << 20;
	out->flows = info.max_event_queue_flows != 0 && info.max_event_queue_flows < most ? info.max_event_queue_flows : most;
	memset(&conf, 0, sizeof(conf));
	conf.nb_event_queues = QUEUES;
	conf.nb_event_ports = workers + 2;
	conf.nb_events_limit = info.max_num_events;
	conf.nb_event_queue_flows = out->flows;
	conf.nb_event_port_dequeue_depth = info.max_event_port_dequeue_depth;
	conf.nb_event_port_enqueue_depth = info.max_event_port_enqueue_depth;
	conf.dequeue_timeout_ns = info.min_dequeue_timeout_ns;
	rc = rte_event_dev_configure(device, &conf);
	for (uint8_t number = 0; rc == 0 && number < QUEUES; number++)
		rc = queue(device, number, out->flows);
	for (uint8_t number = 0; rc == 0 && number < workers + 2; number++)
		rc = port(device, number,
			  number == FEEDER ? -1 : number < FIRST_WORKER + workers ? TO_WORKERS : TO_COLLECTOR);
	if (rc == 0)
		rc = rte_event_dev_stop_flush_callback_register(device, flush, NULL);
	if (rc != 0)
		return rc;
	/* A software device needs one of our threads to run its scheduler. */
	out->service = -1;
	uint32_t service;
	if (rte_event_dev_service_id_get(device, &service) == 0) {
		rc = rte_service_set_runstate_mapped_check(service, 0);
		if (rc == 0)
			rc = rte_service_runstate_set(service, 1);
		out->service = (int32_t)service;
	}
	if (rc == 0)
		rc = rte_event_dev_start(device);
	out->device = device;
	return rc;
}

int shim_event_close(uint8_t device)
{
	rte_event_dev_stop(device);
	return rte_event_dev_close(device);
}

int shim_event_schedule(int32_t service) { return rte_service_run_iter_on_app_lcore((uint32_t)service, 1); }

static uint16_t enqueue(uint8_t device, uint8_t port, uint8_t queue, uint8_t op, struct rte_mbuf **frames,
			const uint32_t *flows, uint16_t count)
{
	struct rte_event events[SHIM_EVENT_BURST];
	if (count > SHIM_EVENT_BURST)
		count = SHIM_EVENT_BURST;
	for (uint16_t i = 0; i < count; i++) {
		events[i] = (struct rte_event){
			.flow_id = flows[i] & 0xfffff,
			.event_type = RTE_EVENT_TYPE_CPU,
			.op = op,
			.sched_type = RTE_SCHED_TYPE_ATOMIC,
			.queue_id = queue,
			.priority = RTE_EVENT_DEV_PRIORITY_NORMAL,
			.mbuf = frames[i],
		};
	}
	return rte_event_enqueue_burst(device, port, events, count);
}

uint16_t shim_event_feed(uint8_t device, struct rte_mbuf **frames, const uint32_t *flows, uint16_t count)
{
	return enqueue(device, FEEDER, TO_WORKERS, RTE_EVENT_OP_NEW, frames, flows, count);
}

uint16_t shim_event_pass(uint8_t device, uint8_t port, struct rte_mbuf **frames, const uint32_t *flows,
			 uint16_t count)
{
	return enqueue(device, port, TO_COLLECTOR, RTE_EVENT_OP_FORWARD, frames, flows, count);
}

uint16_t shim_event_take(uint8_t device, uint8_t port, struct rte_mbuf **frames, uint32_t *flows, uint16_t room)
{
	struct rte_event events[SHIM_EVENT_BURST];
	if (room > SHIM_EVENT_BURST)
		room = SHIM_EVENT_BURST;
	uint16_t count = rte_event_dequeue_burst(device, port, events, room, 0);
	for (uint16_t i = 0; i < count; i++) {
		frames[i] = events[i].mbuf;
		flows[i] = events[i].flow_id;
	}
	return count;
}

void shim_event_flush(uint8_t device, uint8_t port)
{
	/* An empty enqueue makes a device that batches events send them on. */
	struct rte_event none = { 0 };
	(void)rte_event_enqueue_burst(device, port, &none, 0);
}
