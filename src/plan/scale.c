/* See scale.h. */
#include "src/plan/scale.h"

#include <math.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

const double fsdp_scale_quantiles[3] = {0.5, 0.9, 0.99};

enum {
    /* For the mean step, the distribution of stragglers is cut into this number of equally likely
     * parts. */
    STRAGGLER_PARTS = 50
};

/* What the replay knows about one unit. */
typedef struct unit_state {
    double gather_bytes; /* size of the unit's all-gather; 0: nothing is gathered */
    bool is_gathering;
    size_t gather;     /* if is_gathering: index of the transfer of the gather in progress */
    bool is_secondary; /* the unit was freed after forward. Its next gather is then among only
                          fsdp_plan_unit.kept_ranks ranks, unless this number is 0 */
    bool sends_lanes;  /* the unit's lane, or its sums, are being sent to the other replicas (Note
                          [Lanes of replicas] in src/fsdp/grad_lanes.h) */
    size_t lanes;      /* if sends_lanes: index of the transfer that sends the lane or the sums */
    size_t next_post;  /* index in the timeline where the search for the next post continues */
} unit_state;

typedef struct replay {
    const fsdp_plan *plan;
    const fsdp_scale_options *options;
    double flops_per_s;
    unit_state *units; /* [n_units] */
    struct sent {
        size_t reduce;   /* for a POST event: index of its REDUCE event in the timeline; 0: there is
                            no such event */
        size_t transfer; /* for a REDUCE event: the number of the transfer, if is_sent */
        bool is_sent;    /* for a REDUCE event: its gradients are sent between hosts */
    } * sent;            /* [n_timeline] */
    fsdp_host_link link;
    fsdp_scale_estimate *out;
} replay;

/* --- what collectives send --- */

static fsdp_transfer gather_of(const replay *r, int unit)
{
    const fsdp_plan_unit *u = &r->plan->units[unit];
    const unit_state *state = &r->units[unit];
    int ranks = u->shard_ranks, local = u->shard_local_ranks;
    if (state->is_secondary && u->kept_ranks) {
        ranks = u->kept_ranks;
        local = local < ranks ? local : ranks;
    }
    return fsdp_exchange_gather(&r->options->interconnect, state->gather_bytes, ranks, local);
}

/* Return the transfer of the gradients of event `e`. Each rank sends e->bytes bytes in all, to
 * ranks of `hosts` - 1 other hosts. */
static fsdp_transfer gradients_of(const replay *r, const fsdp_plan_event *e, int hosts)
{
    return fsdp_exchange_sent(&r->options->interconnect, (double)e->bytes, hosts,
                              r->plan->local_world_size);
}

/* --- before the replay --- */

static fsdp_status match_post(replay *r, size_t reduce)
{
    const fsdp_plan *p = r->plan;
    const fsdp_plan_event *e = &p->timeline[reduce];
    size_t *i = &r->units[e->unit].next_post;
    while (*i < reduce &&
           !(p->timeline[*i].kind == FSDP_PLAN_POST && p->timeline[*i].unit == e->unit))
        (*i)++;
    if (*i == reduce)
        return fsdp_error(FSDP_ERR_STATE, "plan: unit '%s' reduces gradients that it did not post",
                          fsdp_plan_unit_name(p, e->unit));
    r->sent[*i].reduce = reduce;
    (*i)++;
    return FSDP_OK;
}

/* Find the size of each unit's gather. For each POST event, which posts gradients, also find the
 * REDUCE event, which sums them. The REDUCE events of a unit are in the order of its POST
 * events. */
static fsdp_status look_ahead(replay *r)
{
    const fsdp_plan *p = r->plan;
    for (size_t i = 0; i < p->n_timeline; i++) {
        const fsdp_plan_event *e = &p->timeline[i];
        unit_state *u = &r->units[e->unit];
        if (e->kind == FSDP_PLAN_UNSHARD)
            u->gather_bytes = fmax(u->gather_bytes, (double)e->bytes);
        else if (e->kind == FSDP_PLAN_REDUCE)
            FSDP_TRY(match_post(r, i));
    }
    return FSDP_OK;
}

/* --- the replay --- */

static fsdp_status start(replay *r, fsdp_link_kind kind, fsdp_transfer transfer, size_t *index,
                         bool *is_sent)
{
    *is_sent = transfer.bytes > 0.0;
    return *is_sent ? fsdp_host_link_start(&r->link, kind, transfer, index) : FSDP_OK;
}

/* Begin the gather of a unit, unless it has begun. `e` is the event at which it begins. */
static fsdp_status begin_gather(replay *r, const fsdp_plan_event *e)
{
    unit_state *u = &r->units[e->unit];
    const fsdp_transfer transfer = gather_of(r, e->unit);
    if (u->is_gathering)
        return FSDP_OK;
    if (e->phase != FSDP_PLAN_FORWARD)
        r->out->backward_gather_bytes += transfer.bytes;
    return start(r, FSDP_LINK_GATHER, transfer, &u->gather, &u->is_gathering);
}

static fsdp_status end_gather(replay *r, const fsdp_plan_event *e)
{
    unit_state *u = &r->units[e->unit];
    if (!e->bytes)
        return FSDP_OK;
    FSDP_TRY(begin_gather(r, e));
    if (u->is_gathering)
        r->out->exposed_gather_s += fsdp_host_link_wait(&r->link, FSDP_LINK_GATHER, u->gather);
    u->is_gathering = false;
    return FSDP_OK;
}

static void reshard(replay *r, const fsdp_plan_event *e)
{
    unit_state *u = &r->units[e->unit];
    u->is_gathering = false; /* a unit that was prefetched but not used; the link still sends it */
    u->is_secondary = e->phase == FSDP_PLAN_FORWARD;
}

static fsdp_status post(replay *r, size_t i)
{
    const fsdp_plan_event *e = &r->plan->timeline[i];
    const fsdp_plan_unit *u = &r->plan->units[e->unit];
    struct sent *to = &r->sent[r->sent[i].reduce];
    const int hosts = fsdp_exchange_hosts(u->shard_ranks, u->shard_local_ranks);
    if (!r->sent[i].reduce)
        return FSDP_OK;
    return start(r, FSDP_LINK_REDUCE, gradients_of(r, e, hosts), &to->transfer, &to->is_sent);
}

static void wait_for_lanes(replay *r, unit_state *u)
{
    if (u->sends_lanes)
        r->out->exposed_all_reduce_s += fsdp_host_link_wait(&r->link, FSDP_LINK_REDUCE, u->lanes);
    u->sends_lanes = false;
}

/* Start to send gradients to the other replicas: the lane of this replica, or the sums of all
 * lanes. First wait for the previous such transfer of this unit. */
static fsdp_status send_lanes(replay *r, const fsdp_plan_event *e)
{
    const fsdp_plan_unit *u = &r->plan->units[e->unit];
    unit_state *state = &r->units[e->unit];
    const int hosts = fsdp_exchange_hosts(u->replicas, u->local_replicas);
    wait_for_lanes(r, state);
    return start(r, FSDP_LINK_REDUCE, gradients_of(r, e, hosts), &state->lanes,
                 &state->sends_lanes);
}

static fsdp_status replay_event(replay *r, size_t i)
{
    const fsdp_plan_event *e = &r->plan->timeline[i];
    switch (e->kind) {
    case FSDP_PLAN_GATHER:
        return begin_gather(r, e);
    case FSDP_PLAN_UNSHARD:
        return end_gather(r, e);
    case FSDP_PLAN_RESHARD:
        reshard(r, e);
        break;
    case FSDP_PLAN_POST:
        return post(r, i);
    case FSDP_PLAN_REDUCE:
        if (r->sent[i].is_sent)
            r->out->exposed_reduce_s +=
                fsdp_host_link_wait(&r->link, FSDP_LINK_REDUCE, r->sent[i].transfer);
        break;
    case FSDP_PLAN_POST_LANES:
    case FSDP_PLAN_SUM_LANES:
        return send_lanes(r, e);
    case FSDP_PLAN_ALL_REDUCE:
        wait_for_lanes(r, &r->units[e->unit]);
        break;
    case FSDP_PLAN_BEGIN:
    case FSDP_PLAN_END:
        break;
    }
    return FSDP_OK;
}

static fsdp_status replay_events(replay *r)
{
    const fsdp_plan *p = r->plan;
    double flops = 0.0;
    FSDP_TRY(look_ahead(r));
    for (size_t i = 0; i < p->n_timeline; i++) {
        fsdp_host_link_pass(&r->link, (p->timeline[i].flops - flops) / r->flops_per_s);
        flops = p->timeline[i].flops;
        FSDP_TRY(replay_event(r, i));
    }
    fsdp_host_link_pass(&r->link, (p->flops - flops) / r->flops_per_s);
    return FSDP_OK;
}

/* Return the time of the small collectives, in which the values of all ranks are gathered over a
 * tree of the hosts. Add the bytes that a host sends to *sent. */
static double small_s(const fsdp_plan *p, const fsdp_interconnect *net, int hosts, double *sent)
{
    const double bytes = (double)p->small_bytes * (hosts - 1) / hosts;
    if (hosts < 2)
        return 0.0;
    *sent += bytes;
    return (double)p->small_collectives * ceil(log2(hosts)) * net->latency_s +
           bytes / net->bytes_per_s;
}

/* Simulate a step in which all ranks are slower by `factor`. */
static fsdp_status simulate(const fsdp_plan *p, const fsdp_scale_options *o, double factor,
                            fsdp_scale_estimate *out)
{
    replay r = {.plan = p,
                .options = o,
                .flops_per_s = o->flops_per_s / factor,
                .link = {.bytes_per_s = o->interconnect.bytes_per_s},
                .out = out};
    out->hosts = fsdp_exchange_hosts(p->world_size, p->local_world_size);
    r.units = fsdp_calloc(p->n_units, sizeof *r.units);
    r.sent = fsdp_calloc(p->n_timeline, sizeof *r.sent);
    fsdp_status status = r.units && r.sent ? replay_events(&r) : fsdp_error_nomem();
    out->host_sent_bytes = r.link.sent_bytes;
    out->compute_s = p->flops / o->flops_per_s;
    out->exposed_small_s = small_s(p, &o->interconnect, out->hosts, &out->host_sent_bytes);
    out->step_s = r.link.now_s + out->exposed_small_s;
    fsdp_host_link_fini(&r.link);
    fsdp_free(r.units);
    fsdp_free(r.sent);
    return status;
}

/* --- stragglers --- */

/* Return z such that a normal variable is above it with probability `tail`. */
static double normal_quantile(double tail)
{
    double low = -40.0, high = 40.0;
    for (int i = 0; i < 100; i++) {
        const double middle = 0.5 * (low + high);
        if (0.5 * erfc(middle / sqrt(2.0)) > tail)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* Stragglers multiply the compute time of each rank by a random factor. Return quantile q of the
 * largest of the factors of `ranks` ranks. */
static double slowest_factor(double straggler, int ranks, double q)
{
    const double tail = -expm1(log(q) / ranks); /* 1 - q^(1 / ranks) */
    return fmax(1.0 + straggler * normal_quantile(tail), 1e-3);
}

static fsdp_status step_of_quantile(const fsdp_plan *p, const fsdp_scale_options *o, double q,
                                    double *step_s)
{
    fsdp_scale_estimate slow = {0};
    FSDP_TRY(simulate(p, o, slowest_factor(o->straggler, p->world_size, q), &slow));
    *step_s = slow.step_s;
    return FSDP_OK;
}

static fsdp_status estimate_stragglers(const fsdp_plan *p, const fsdp_scale_options *o,
                                       fsdp_scale_estimate *out)
{
    out->straggler_step_s = 0.0;
    for (size_t i = 0; i < FSDP_LENGTH(fsdp_scale_quantiles); i++)
        FSDP_TRY(step_of_quantile(p, o, fsdp_scale_quantiles[i], &out->straggler_quantile_s[i]));
    for (int i = 0; i < STRAGGLER_PARTS; i++) {
        double step_s;
        FSDP_TRY(step_of_quantile(p, o, (i + 0.5) / STRAGGLER_PARTS, &step_s));
        out->straggler_step_s += step_s / STRAGGLER_PARTS;
    }
    return FSDP_OK;
}

/* --- the estimate --- */

static fsdp_status check_options(const fsdp_scale_options *o)
{
    if (!(o->interconnect.bytes_per_s > 0.0) || !(o->interconnect.latency_s >= 0.0) ||
        !isfinite(o->interconnect.bytes_per_s) || !isfinite(o->interconnect.latency_s))
        return fsdp_error(FSDP_ERR_INVALID,
                          "the interconnect has %g bytes per second and a latency of %g s",
                          o->interconnect.bytes_per_s, o->interconnect.latency_s);
    if (!(o->flops_per_s > 0.0) || !isfinite(o->flops_per_s))
        return fsdp_error(FSDP_ERR_INVALID, "a rank has %g operations per second", o->flops_per_s);
    if (!(o->straggler >= 0.0) || o->straggler > 1.0)
        return fsdp_error(FSDP_ERR_INVALID, "straggler is %g, not from 0 to 1", o->straggler);
    return FSDP_OK;
}

/* Check that the ranks of each shard group are on one host, or are all ranks of several hosts. */
static fsdp_status check_units(const fsdp_plan *p)
{
    for (size_t i = 0; i < p->n_units; i++) {
        const fsdp_plan_unit *u = &p->units[i];
        const bool fits = u->shard_local_ranks == u->shard_ranks ||
                          (u->shard_local_ranks == p->local_world_size &&
                           u->shard_ranks % p->local_world_size == 0);
        if (!fits)
            return fsdp_error(FSDP_ERR_INVALID,
                              "--shard-size %d: the ranks that share unit '%s' neither are on one "
                              "host nor fill hosts of --local-world-size %d",
                              u->shard_ranks, fsdp_plan_unit_name(p, (int)i), p->local_world_size);
    }
    return FSDP_OK;
}

fsdp_status fsdp_scale_estimate_step(const fsdp_plan *plan, const fsdp_scale_options *options,
                                     fsdp_scale_estimate *out)
{
    fsdp_scale_estimate e = {.world_size = plan->world_size,
                             .local_world_size = plan->local_world_size,
                             .flops = plan->flops,
                             .rank_bytes = plan->reserved};
    const double tokens = (double)plan->rows * (double)(plan->source_length + plan->target_length) *
                          plan->micro_steps * plan->world_size;
    FSDP_TRY(check_options(options));
    FSDP_TRY(check_units(plan));
    FSDP_TRY(simulate(plan, options, 1.0, &e));
    e.straggler_step_s = e.step_s;
    for (size_t i = 0; i < FSDP_LENGTH(fsdp_scale_quantiles); i++)
        e.straggler_quantile_s[i] = e.step_s;
    if (options->straggler > 0.0)
        FSDP_TRY(estimate_stragglers(plan, options, &e));
    e.efficiency = e.compute_s / e.straggler_step_s;
    e.tokens_per_s = tokens / e.straggler_step_s;
    *out = e;
    return FSDP_OK;
}
