/* The cards of this machine, and what a user's name of a device means on it.
 *
 * Note [Choosing a device]. Commands, $FSDP_DEVICE and fsdp_device_options.name take these names:
 *
 *     cpu       the CPU
 *     cuda      the card of this rank: its local rank modulo the number of cards, as in
 *               torch.cuda.set_device(local_rank). Ranks may share a card.
 *     cuda:N    card N, for all ranks
 *     auto      a card if one can be used, otherwise the CPU. A card can be used if its compute
 *               capability is at least 8.0 and this program has code for it. Rank r takes the
 *               usable card r modulo the number of usable cards.
 *     meta      computes shapes only; meta:cuda counts memory as on a card
 *
 * The library's default is cpu. The default of commands, and of fsdp_default_device(), is auto. The
 * testing build has an emulated card: `cuda` finds it, `auto` does not. */
#pragma once
#include "src/tensor/device.h"

enum {
    FSDP_DEVICE_NAME_BYTES = 32, /* size of a name such as cuda:1 */
    FSDP_CARD_CAPABILITY = 80,   /* the least compute capability, times 10, that kernels need */
    FSDP_CARD_CODE_BYTES = 32
};

typedef struct fsdp_card {
    char name[128];
    int64_t bytes;  /* its memory */
    int capability; /* the compute capability times 10: 90 for 9.0 */
    /* The code of this program that the card runs: "sm_90a", or "PTX of compute_90", which the
     * driver compiles. Empty if there is none. */
    char code[FSDP_CARD_CODE_BYTES];
} fsdp_card;

/* What the CUDA device reports about cards. The functions initialise the driver, but use no memory
 * of a card, with the exception of free_bytes(). */
typedef struct fsdp_card_ops {
    fsdp_status (*count)(int *n); /* FSDP_ERR_UNSUPPORTED, with the reason, if there is no card */
    fsdp_status (*describe)(int ordinal, fsdp_card *card);
    /* Get the bytes of a card's memory that no process uses. */
    fsdp_status (*free_bytes)(int ordinal, int64_t *bytes);
    /* Get the version of CUDA that the driver supports, and that of the runtime in this program:
     * 12040 for 12.4. A version is 0 if there is none. */
    void (*versions)(int *driver, int *runtime);
    /* Load "cublasLt" or "nccl" as the device does, and get its version: "13.1.1". Returns false if
     * it is not found. */
    bool (*library_version)(const char *library, char version[32]);
    const char *code; /* what this program has code for: "sm_80 sm_90a compute_90" */
    bool is_emulated;
} fsdp_card_ops;

extern const fsdp_card_ops fsdp_cuda_cards;
/* Return NULL if this build has no CUDA device. */
const fsdp_card_ops *fsdp_card_functions(void);

/* Set *n to the number of cards, at least 1. FSDP_ERR_UNSUPPORTED if there is none; the message
 * says why: no CUDA in this build, no driver, or no card. */
FSDP_MUST_CHECK fsdp_status fsdp_cards_count(int *n);
/* Describe card `ordinal`, which is below the number of cards. */
FSDP_MUST_CHECK fsdp_status fsdp_card_describe(int ordinal, fsdp_card *card);
/* Return the number of cards that `auto` may take: 0 on a machine without a card and for the
 * emulator. */
int fsdp_cards_usable(void);
/* Choose from `codes`, a list like fsdp_card_ops.code, the code that a card of this capability
 * runs, and describe it in *code as fsdp_card.code does. */
void fsdp_card_choose_code(const char *codes, int capability, char code[FSDP_CARD_CODE_BYTES]);

/* Check the names [n] of cards in Accelerate's gpu_ids: "all" alone, or numbers and UUIDs
 * ("GPU-..."), none of them twice. The message of FSDP_ERR_INVALID contains the name. */
FSDP_MUST_CHECK fsdp_status fsdp_cards_check_ids(const char *const *ids, size_t n);
/* Let this process and its children use only these cards [n]: set CUDA_VISIBLE_DEVICES. Nothing
 * changes if there are none, or if the only name is "all". Called before the first card is used. */
FSDP_MUST_CHECK fsdp_status fsdp_cards_set_visible(const char *const *ids, size_t n);

/* Check that `name` is one of the names in Note [Choosing a device], or the name of a device for
 * tests. Does not ask whether this build or this machine has the device. */
FSDP_MUST_CHECK fsdp_status fsdp_device_check_name(const char *name);
/* Return true for cuda and cuda:N, which need a card. */
bool fsdp_device_name_is_cuda(const char *name);
/* Replace `cuda` and `auto` by what they mean for the rank `local_rank` of this machine: "cuda:1".
 * Other names are copied. Fails as fsdp_cards_count() does if `name` is cuda or cuda:N and there is
 * no card, and with FSDP_ERR_INVALID if there is no card N. */
FSDP_MUST_CHECK fsdp_status fsdp_device_resolve(const char *name, int local_rank,
                                                char resolved[FSDP_DEVICE_NAME_BYTES]);
/* Return how many of `local_world_size` ranks of this machine share the card that has most ranks,
 * if they all use the device `name`: cuda, cuda:N or auto. If there is no card, as on a machine
 * that only plans, the answer assumes a card for each rank. */
int fsdp_device_ranks_per_card(const char *name, int local_world_size);

/* Describe the device for a header or a report: "cuda:0 (NVIDIA H100 80GB HBM3, 79.2 GiB)" or
 * "cpu". */
void fsdp_device_describe(const fsdp_device *device, char text[256]);
