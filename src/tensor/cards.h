/* The cards of this machine, and the names by which a user chooses a device.
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
 *     meta      computes only shapes, and counts memory as on the CPU; meta:cuda counts memory as
 *               on a card
 *
 * The library's default is cpu. The default of commands, and of fsdp_default_device(), is auto. The
 * testing build has an emulated card: `cuda` finds it, `auto` does not. */
#pragma once
#include "src/tensor/device.h"

enum {
    FSDP_DEVICE_NAME_BYTES = 32, /* size of a name such as cuda:1 */
    FSDP_CARD_CAPABILITY = 80,   /* the lowest compute capability that kernels support, times 10 */
    FSDP_CARD_CODE_BYTES = 32
};

typedef struct fsdp_card {
    char name[128];
    int64_t bytes;  /* size of the card's memory */
    int capability; /* the compute capability times 10: 90 for 9.0 */
    /* The code in this program that the card runs: "sm_90a", or "PTX of compute_90", which the
     * driver compiles. Empty if the program has no code for the card. */
    char code[FSDP_CARD_CODE_BYTES];
} fsdp_card;

/* The functions through which this library asks CUDA about cards. They may initialize the driver.
 * Only free_bytes() allocates memory on a card. */
typedef struct fsdp_card_ops {
    fsdp_status (*count)(int *n); /* Set *n to the number of cards. Return FSDP_ERR_UNSUPPORTED if
                                     there is no card; the message says why. */
    fsdp_status (*describe)(int ordinal, fsdp_card *card);
    /* Set *bytes to the amount of a card's memory that no process uses. */
    fsdp_status (*free_bytes)(int ordinal, int64_t *bytes);
    /* Return true if card `from` can write directly to the memory of card `to`. */
    bool (*reaches)(int from, int to);
    /* Set *driver to the version of CUDA that the driver supports, and *runtime to that of the
     * runtime in this program: 12040 for 12.4. A version is 0 if there is no driver or no
     * runtime. */
    void (*versions)(int *driver, int *runtime);
    /* Load the library "cublasLt" or "nccl" from the same file as the CUDA device would, and write
     * its version, such as "13.1.1", to `version`. Return false if the library is not found. */
    bool (*library_version)(const char *library, char version[32]);
    /* All architectures for which this program contains code, such as "sm_80 sm_90a compute_90". */
    const char *code;
    bool is_emulated;
} fsdp_card_ops;

extern const fsdp_card_ops fsdp_cuda_cards;
/* Return this build's table of card functions, or NULL if this build has no CUDA device. */
const fsdp_card_ops *fsdp_card_functions(void);

/* Set *n to the number of cards, at least 1. If there is no card, fail with FSDP_ERR_UNSUPPORTED;
 * the message says why: no CUDA in this build, no driver, or no card. */
FSDP_MUST_CHECK fsdp_status fsdp_cards_count(int *n);
/* Set *card to the properties of card `ordinal`, which must be below the number of cards. */
FSDP_MUST_CHECK fsdp_status fsdp_card_describe(int ordinal, fsdp_card *card);
/* Return the number of cards from which the device name `auto` may choose. This is 0 on a machine
 * without a card, and 0 for the emulator. */
int fsdp_cards_usable(void);
/* `codes` is a list like fsdp_card_ops.code. Choose the code that a card of compute capability
 * `capability` runs, and write it to `code` in the form of fsdp_card.code. */
void fsdp_card_choose_code(const char *codes, int capability, char code[FSDP_CARD_CODE_BYTES]);

/* Check the names [n] of cards in Accelerate's gpu_ids: "all" alone, or numbers and UUIDs
 * ("GPU-..."), each given once. If a name is invalid, return FSDP_ERR_INVALID with a message that
 * contains this name. */
FSDP_MUST_CHECK fsdp_status fsdp_cards_check_ids(const char *const *ids, size_t n);
/* Let this process and its children use only the cards `ids` [n]: set CUDA_VISIBLE_DEVICES. Change
 * nothing if n is 0, or if the only name is "all". Call this before the first card is used. */
FSDP_MUST_CHECK fsdp_status fsdp_cards_set_visible(const char *const *ids, size_t n);

/* Check that `name` is one of the names in Note [Choosing a device], or the name of a device for
 * tests. This does not check whether this build or this machine has the device. */
FSDP_MUST_CHECK fsdp_status fsdp_device_check_name(const char *name);
/* Return true if `name` is cuda or cuda:N. */
bool fsdp_device_name_is_cuda(const char *name);
/* Write to `resolved` which device `name` means for the rank with number `local_rank` on this
 * machine: `cuda` and `auto` become "cuda:1" or "cpu", for example, and other names are copied. If
 * `name` is cuda or cuda:N and there is no card, fail as fsdp_cards_count() does. If there is no
 * card N, fail with FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_device_resolve(const char *name, int local_rank,
                                                char resolved[FSDP_DEVICE_NAME_BYTES]);
/* Suppose that the `local_world_size` ranks of this machine all use the device `name`: cuda, cuda:N
 * or auto. Return the number of ranks on the card that has the most ranks. If there is no card, as
 * on a machine that only plans, assume one card for each rank. */
int fsdp_device_ranks_per_card(const char *name, int local_world_size);

/* Write a description of the device, for a header or a report: "cuda:0 (NVIDIA H100 80GB HBM3, 79.2
 * GiB)" or "cpu". */
void fsdp_device_describe(const fsdp_device *device, char text[256]);
