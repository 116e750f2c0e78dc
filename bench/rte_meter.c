/* DPDK's meter, for comparison with netlathe's: how close rte_meter (srTCM, RFC 2697, no excess) comes to 1 Mbit/s for one user at
 * 2 Mbit/s, and how many calls a second one core makes, by number of users. Not part of netlathe: `make bench-limit`
 * builds and runs it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_meter.h>

static uint64_t drawn = 1;

static uint32_t draw(uint64_t below)
{
	drawn = drawn * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((drawn >> 32) * below >> 32);
}

static int accuracy(void)
{
	struct rte_meter_srtcm_params params = {.cir = 125000, .cbs = 3036, .ebs = 0};
	struct rte_meter_srtcm_profile profile;
	struct rte_meter_srtcm meter;
	uint64_t bits[20] = {0};
	double hz = (double)rte_get_tsc_hz(), now = 0, worst = 0, mean = 0;

	if (rte_meter_srtcm_profile_config(&profile, &params) || rte_meter_srtcm_config(&meter, &profile))
		return 1;
	uint64_t start = meter.time;
	while (now < 40) {
		uint32_t length = 64 + draw(1437);
		if (rte_meter_srtcm_color_blind_check(&meter, &profile, start + (uint64_t)(now * hz), length) == RTE_COLOR_GREEN)
			bits[(int)(now / 2)] += length * 8;
		now += length * 8 / 2e6;
	}
	for (int i = 1; i < 20; i++) {
		double error = (double)bits[i] / 2e6 - 1;
		mean += error / 19;
		if (error < 0)
			error = -error;
		worst = error > worst ? error : worst;
	}
	printf("rte_meter: samples 2 to 20 of 2 s at 1 Mbit/s: mean error %+.4f %%, worst %.3f %%\n", mean * 100, worst * 100);
	return 0;
}

static int speed(uint64_t users)
{
	const uint64_t calls = 1 << 22;
	struct rte_meter_srtcm_params params = {.cir = 125000, .cbs = 3036, .ebs = 0};
	struct rte_meter_srtcm_profile profile;
	struct rte_meter_srtcm *meters = malloc(users * sizeof(*meters));
	uint64_t green = 0;
	double best = 0;

	if (!meters || rte_meter_srtcm_profile_config(&profile, &params))
		return 1;
	for (uint64_t i = 0; i < users; i++)
		rte_meter_srtcm_config(&meters[i], &profile);
	for (int round = 0; round < 5; round++) {
		uint64_t begin = rte_rdtsc();
		for (uint64_t i = 0; i < calls; i++)
			green += rte_meter_srtcm_color_blind_check(&meters[draw(users)], &profile, begin + i * 20, 64) == RTE_COLOR_GREEN;
		double rate = calls / ((double)(rte_rdtsc() - begin) / rte_get_tsc_hz()) / 1e6;
		best = rate > best ? rate : best;
	}
	printf("rte_meter: %" PRIu64 " users, %.1f M calls/s, %zu B each, no table of users, no frame, one core (%" PRIu64 " green)\n",
	       users, best, sizeof(*meters), green);
	free(meters);
	return 0;
}

int main(void)
{
	char *arguments[] = {"rte_meter", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=error", "-m", "64", NULL};

	if (rte_eal_init(8, arguments) < 0)
		return 1;
	return accuracy() || speed(20481) || speed(1000000) || speed(10000000);
}
