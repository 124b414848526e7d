/* See config_compat.h. */
#include "src/train_config/config_compat.h"

#include <assert.h>

#include "src/base/assert.h"
#include "src/train_config/config_accelerate.h"

static const char *const only_1[] = {"1", NULL};
static const char *const versions[] = {"1", "2", NULL};

#define NOWHERE .offset = FSDP_OPTION_NOWHERE
#define NO_TPU "there is no device for TPUs"
#define MACHINE "ranks come from fsdp launch, on this machine"
#define NO_CONTEXT "there is no context parallelism"
#define NO_SEQUENCE "there is no sequence parallelism"
#define COMPILED "nothing is left to compile"
#define OWN_ROWS                                                                                   \
    "each rank reads its own rows from the files, or draws them from the seed, so that all have "  \
    "the same model; no rank ever has the whole model"
#define NO_TRACKER "there is no tracker on the network; --tracker-command starts a program for one"
/* Macros for rows that describe options of other tools. An ACCEPTED option is allowed but has no
 * effect here; `reason` says why. A REFUSED option is an error unless its value is `only`; `reason`
 * says why, or what to use instead. Both kinds of options are hidden from --help. */
#define ACCEPTED(flag, kind, reason)                                                               \
    {                                                                                              \
        .name = flag, .type = FSDP_OPTION_##kind, NOWHERE, .no_effect = reason, .hidden = true     \
    }
#define REFUSED(flag, kind, only, reason)                                                          \
    {                                                                                              \
        .name = flag, .type = FSDP_OPTION_##kind, NOWHERE, .value = only, .instead = reason,       \
        .no_effect = "this is always so here", .hidden = true                                      \
    }

/* clang-format off */
const fsdp_option fsdp_train_compat[] = {
    {.name = "pin-memory", .aliases = "dataloader-pin-memory", .type = FSDP_OPTION_BOOL, NOWHERE,
     .no_effect = "ids are copied to a card through pinned memory in any case"},
    REFUSED("tpu", BOOL, "false", NO_TPU),
    {.name = "local-rank", .type = FSDP_OPTION_INT, NOWHERE,
     .no_effect = MACHINE},
    {.name = "use-orig-params", .aliases = "fsdp-use-orig-params", .type = FSDP_OPTION_BOOL,
     NOWHERE, .no_effect = "parameters always keep their names and shapes, and a unit may have both "
     "frozen and trainable ones"},
    {.name = "sync-module-states", .aliases = "fsdp-sync-module-states",
     .type = FSDP_OPTION_BOOL, NOWHERE, .no_effect = OWN_ROWS},
    {.name = "cpu-ram-efficient-loading", .aliases = "fsdp-cpu-ram-efficient-loading",
     .type = FSDP_OPTION_BOOL, NOWHERE, .no_effect = OWN_ROWS},
    {.name = "offload-to-cpu", .type = FSDP_OPTION_BOOL, NOWHERE,
     .no_effect = "a checkpoint is written tensor by tensor from the CPU's memory"},
    {.name = "rank0-only", .type = FSDP_OPTION_BOOL, NOWHERE,
     .no_effect = "whole tensors are sent one by one to rank 0 only, which writes them"},
    {.name = "log-model", .type = FSDP_OPTION_STRING, NOWHERE, .bare = "all",
     .no_effect = NO_TRACKER},
    REFUSED("compute-environment", STRING, "LOCAL_MACHINE", "ranks run on this machine"),
    {.name = "distributed-type", .type = FSDP_OPTION_CHOICE, NOWHERE, .value = "NO",
     .choices = fsdp_accelerate_types, .no_effect = "FSDP is always used; ranks come from fsdp launch"},
    REFUSED("machine-rank", STRING, "0", "with one host it is 0"),
    {.name = "main-training-function", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = MACHINE},
    {.name = "num-machines", .type = FSDP_OPTION_CHOICE, NOWHERE, .choices = only_1,
     .no_effect = MACHINE},
    {.name = "main-process-ip", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = MACHINE},
    {.name = "main-process-port", .type = FSDP_OPTION_INT, NOWHERE,
     .bounds = FSDP_BETWEEN(0, 65535), .no_effect = MACHINE},
    {.name = "num-processes", .type = FSDP_OPTION_INT, NOWHERE,
     .bounds = FSDP_BETWEEN(-1, 1048576), .no_effect = MACHINE},
    {.name = "rdzv-backend", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = MACHINE},
    {.name = "same-network", .type = FSDP_OPTION_BOOL, NOWHERE, .no_effect = MACHINE},
    {.name = "tpu-env", .type = FSDP_OPTION_LIST, NOWHERE, .no_effect = NO_TPU},
    ACCEPTED("tpu-name", STRING, NO_TPU),
    ACCEPTED("tpu-zone", STRING, NO_TPU),
    ACCEPTED("tpu-vm", LIST, NO_TPU),
    ACCEPTED("command-file", STRING, NO_TPU),
    ACCEPTED("commands", LIST, NO_TPU),
    REFUSED("tpu-use-cluster", BOOL, "false", NO_TPU),
    REFUSED("tpu-cluster", BOOL, "false", NO_TPU),
    ACCEPTED("no-tpu-cluster", BOOL, NO_TPU),
    {.name = "tpu-use-sudo", .type = FSDP_OPTION_BOOL, NOWHERE, .no_effect = NO_TPU},
    {.name = "downcast-bf16", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = NO_TPU},
    {.name = "debug", .type = FSDP_OPTION_STRING, NOWHERE, .bare = "true",
     .env = "FSDP_DEBUG,ACCELERATE_DEBUG_MODE",
     .no_effect = "collectives of ranks are always compared, and values that are not finite are named"},
    {.name = "fsdp-version", .aliases = "version", .type = FSDP_OPTION_CHOICE, NOWHERE,
     .choices = versions, .env = "FSDP_VERSION",
     .no_effect = "the options of both versions are known"},
    {.name = "parallelism-config-tp-size",
     .env = "PARALLELISM_CONFIG_TP_SIZE", .type = FSDP_OPTION_CHOICE, NOWHERE,
     .choices = only_1, .no_effect = "there is no tensor parallelism"},
    {.name = "parallelism-config-cp-size",
     .env = "PARALLELISM_CONFIG_CP_SIZE", .type = FSDP_OPTION_CHOICE, NOWHERE,
     .choices = only_1, .no_effect = NO_CONTEXT},
    {.name = "parallelism-config-cp-backend",
     .env = "PARALLELISM_CONFIG_CP_BACKEND", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = NO_CONTEXT},
    {.name = "parallelism-config-cp-comm-strategy",
     .env = "PARALLELISM_CONFIG_CP_COMM_STRATEGY", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = NO_CONTEXT},
    {.name = "parallelism-config-sp-size",
     .env = "PARALLELISM_CONFIG_SP_SIZE", .type = FSDP_OPTION_CHOICE, NOWHERE,
     .choices = only_1, .no_effect = NO_SEQUENCE},
    {.name = "parallelism-config-sp-backend",
     .env = "PARALLELISM_CONFIG_SP_BACKEND", .type = FSDP_OPTION_STRING, NOWHERE,
     .no_effect = NO_SEQUENCE},
    {.name = "dynamo-backend", .type = FSDP_OPTION_CHOICE, NOWHERE, .value = "NO",
     .choices = fsdp_accelerate_dynamo_backends, .env = "ACCELERATE_DYNAMO_BACKEND", .no_effect = COMPILED},
    ACCEPTED("parallelism-config-sp-seq-length", STRING, NO_SEQUENCE),
    ACCEPTED("parallelism-config-sp-seq-length-is-variable", BOOL, NO_SEQUENCE),
    ACCEPTED("parallelism-config-sp-attn-implementation", STRING, NO_SEQUENCE),
    {.name = "dynamo-mode", .type = FSDP_OPTION_STRING, NOWHERE,
     .env = "ACCELERATE_DYNAMO_MODE", .no_effect = COMPILED},
    {.name = "dynamo-use-dynamic", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_DYNAMO_USE_DYNAMIC", .no_effect = COMPILED},
    {.name = "dynamo-use-fullgraph", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_DYNAMO_USE_FULLGRAPH", .no_effect = COMPILED},
    {.name = "dynamo-use-regional-compilation", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", .no_effect = COMPILED},
    {.name = "fp8-pad-inner-dim", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_FP8_PAD_INNER_DIM",
     .no_effect = "products of any size are computed without padding"},
    {.name = "enable-cpu-affinity", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_CPU_AFFINITY",
     .no_effect = "fsdp launch binds ranks to their cores"},
    {.name = "enable-fsdp", .aliases = "use-fsdp", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_USE_FSDP", .no_effect = "FSDP is always used"},
    {.name = "use-parallelism-config", .type = FSDP_OPTION_BOOL, NOWHERE,
     .env = "ACCELERATE_USE_PARALLELISM_CONFIG",
     .no_effect = "--replicas and --shard-size say how ranks are arranged"},
    {.name = "use-deepspeed", .type = FSDP_OPTION_BOOL, NOWHERE, .value = "false",
     .env = "ACCELERATE_USE_DEEPSPEED", .no_effect = "this is always so here", .hidden = true,
     .instead = "--sharding-strategy FULL_SHARD is ZeRO-3, SHARD_GRAD_OP ZeRO-2"},
    {.name = "use-megatron-lm", .type = FSDP_OPTION_BOOL, NOWHERE, .value = "false",
     .env = "ACCELERATE_USE_MEGATRON_LM", .no_effect = "this is always so here", .hidden = true,
     .instead = "--sharding-strategy shards the model"},
    {.name = "entity", .type = FSDP_OPTION_STRING, NOWHERE, .no_effect = NO_TRACKER},
#include "src/train_config/config_trainer.inc"
};
/* clang-format on */

static_assert(FSDP_LENGTH(fsdp_train_compat) == FSDP_TRAIN_COMPAT, "FSDP_TRAIN_COMPAT");
