/* Parameters that travel in another form than the one they are stored or read in.
 *
 * Note [All-gather extensions]. Such a parameter belongs to neither part of Note [Three memories of
 * a unit]. Each rank packs its own rows into a buffer that all ranks see (WRITE); once all have
 * (READ), every rank unpacks all ranks' rows into memory of its own, and the packed form goes. So
 * the form on the way can be anything, and what operations read costs each rank the whole
 * parameter, as in FSDP2. */
#pragma once
#include "src/fsdp/param_group.h"

/* Does p travel in a form of its own? */
bool fsdp_param_is_extended(const fsdp_param *p);
/* Give extended parameters their places and the storage that operations read. */
FSDP_MUST_CHECK fsdp_status fsdp_extension_prepare(fsdp_param_group *unit);
void fsdp_extension_release(fsdp_param_group *unit);

/* Pack own rows, as a part of prefetch; unpack all rows, as a part of unshard; let them go. None
 * has an effect on a unit without extended parameters. */
FSDP_MUST_CHECK fsdp_status fsdp_extension_pack(fsdp_param_group *unit);
FSDP_MUST_CHECK fsdp_status fsdp_extension_unpack(fsdp_param_group *unit);
void fsdp_extension_drop(fsdp_param_group *unit);
