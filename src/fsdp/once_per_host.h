/* What NO_SHARD keeps once for all ranks of a host.
 *
 * Note [Once per host]. Under NO_SHARD every rank has its own whole master of what trains. What is
 * frozen is the same on all of them for as long as it is frozen, so it lies in one buffer, and the
 * whole local tensor of each rank is a view of that. Nobody waits to read it: it is written between
 * two barriers alone, at which no rank is gathered. All ranks write, since they run the same
 * program, but only the first one's values stay: the others are given memory of their own for as
 * long as they write, which is dropped, and in no plan: one parameter at a time, between steps. */
#pragma once
#include "src/fsdp/param_group.h"

/* Is the parameter to be stored so, as its unit and requires_grad are now? */
bool fsdp_is_once_per_host(const fsdp_param_group *unit, const fsdp_parameter *parameter);
/* The memory of those of the unit that were laid out so. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_once_per_host_prepare(fsdp_param_group *unit);
void fsdp_once_per_host_release(fsdp_param_group *unit);
/* The whole local tensor of such a parameter. */
FSDP_MUST_CHECK fsdp_status fsdp_once_per_host_local(fsdp_param_group *unit, fsdp_param *p,
                                                     fsdp_tensor **local);
/* Where operations read it, if it is stored in param_dtype. */
FSDP_MUST_CHECK fsdp_status fsdp_once_per_host_data(const fsdp_param_group *unit,
                                                    const fsdp_param *p, fsdp_tensor **data);
/* Show to operations what is stored as they read it, or hide it. */
void fsdp_once_per_host_show(const fsdp_param_group *unit, bool show);
