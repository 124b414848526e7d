/* What all commands that compute share: the option --device, and the environment variables of
 * --threads-per-rank.
 *
 * Note [Choosing a device] in src/tensor/cards.h describes the values of --device. The environment
 * variable of --device is FSDP_DEVICE. Programs that use the library, but not this option, read the
 * same variable. */
#pragma once
#include <fsdp/options.h>

#define FSDP_DEVICE_HELP                                                                           \
    "where to compute: cpu, cuda, cuda:N or auto; cuda: the card of this rank (ranks may share a " \
    "card); cuda:N: that card for all ranks; auto: a card if there is one to use, else the CPU"

/* The values of --device that contain no number, for fsdp_option.completions. */
extern const char *const fsdp_device_words[];

/* A row of an option table. `place` is the offset of a const char * in the command's struct. */
#define FSDP_DEVICE_OPTION(place)                                                                  \
    {                                                                                              \
        .name = "device", .type = FSDP_OPTION_STRING, .offset = (place), .value = "auto",          \
        .completions = fsdp_device_words, .metavar = "KIND", .help = FSDP_DEVICE_HELP              \
    }

/* The environment variables and the shown default of --threads-per-rank. As in PyTorch,
 * OMP_NUM_THREADS is the number of threads of a process that was given no other number. */
#define FSDP_THREADS_ENV "FSDP_THREADS_PER_RANK,OMP_NUM_THREADS"
#define FSDP_THREADS_DEFAULT "0, cores / ranks"

/* Check the value `name` of --device, for the spec's check(). An error message says where the value
 * was given. `plans` is true if the command only plans a run. If `plans` is false, the command
 * computes, so return FSDP_ERR_INVALID for meta, and FSDP_ERR_UNSUPPORTED for cuda in a build
 * without CUDA. This function does not check whether the machine has the GPU; creating the device
 * does. */
FSDP_MUST_CHECK fsdp_status fsdp_check_device_option(const fsdp_options *options, const char *name,
                                                     bool plans);
