/* Derives the values of a configuration that were not given from the values that were given;
 * fsdp_train_config_derive() in config.h is the entry. The functions here are also used by the
 * checks (config.c). */
#pragma once
#include "src/train_config/config.h"

/* Set the learning rate and the task prefix if they were not given. For seq2seq, the default
 * learning rate is that of the FSDP tutorial for T5. For other tasks, it is the rate that is usual
 * for Llama and BERT. */
void fsdp_train_complete(fsdp_train_config *config, fsdp_task task);
/* If no option says how the learning rate changes, choose the schedule by task. seq2seq keeps the
 * schedule of the FSDP tutorial for T5, and causal-lm gets a cosine. Classification and masked-lm
 * get a linear decay to 0, as in transformers' scripts and Accelerate's tutorial for BERT. */
void fsdp_train_complete_schedule(fsdp_train_config *config, fsdp_task task);
/* Return true if --task is given, and set *task to the task that the model must then have. For
 * example, --task span-corruption needs a model whose task is seq2seq. If --task is not given,
 * *task is undefined. */
bool fsdp_train_given_task(const fsdp_train_config *config, fsdp_task *task);
/* Return true if an option has a value that has an effect only with activation checkpointing. */
bool fsdp_train_says_checkpointing(const fsdp_train_config *config);
