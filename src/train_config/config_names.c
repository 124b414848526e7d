/* The names of tasks and sharding strategies, as options spell them. */
#include "src/train_config/config.h"

const char *fsdp_train_task_name(fsdp_task task)
{
    static const char *const names[] = {[FSDP_TASK_SEQ2SEQ] = "seq2seq",
                                        [FSDP_TASK_CAUSAL_LM] = "causal-lm",
                                        [FSDP_TASK_CLASSIFICATION] = "classification",
                                        [FSDP_TASK_MASKED_LM] = "masked-lm"};
    return names[task];
}

const char *fsdp_train_given_task_name(int task)
{
    return task == FSDP_TRAIN_SPAN_CORRUPTION ? "span-corruption"
                                              : fsdp_train_task_name(fsdp_train_model_task(task));
}

fsdp_task fsdp_train_model_task(int task)
{
    return task == FSDP_TRAIN_SPAN_CORRUPTION ? FSDP_TASK_SEQ2SEQ
                                              : (fsdp_task)(task - FSDP_TRAIN_SEQ2SEQ);
}

const char *fsdp_train_task_prefix(fsdp_task task)
{
    return task == FSDP_TASK_SEQ2SEQ ? "summarize: " : "";
}

const char *fsdp_sharding_strategy_name(fsdp_sharding_strategy strategy)
{
    static const char *const names[] = {[FSDP_SHARDING_FULL_SHARD] = "FULL_SHARD",
                                        [FSDP_SHARDING_SHARD_GRAD_OP] = "SHARD_GRAD_OP",
                                        [FSDP_SHARDING_NO_SHARD] = "NO_SHARD",
                                        [FSDP_SHARDING_HYBRID_SHARD] = "HYBRID_SHARD",
                                        [FSDP_SHARDING_HYBRID_SHARD_ZERO2] = "HYBRID_SHARD_ZERO2"};
    return names[strategy];
}
