/* libsentencepiece (C++) behind a C interface: this header exposes none of its types and lets no
 * exception through. */
#pragma once
#include <fsdp/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_sentencepiece fsdp_sentencepiece;

/* `model` is the content of the file, needed only during the call. If it is no model, returns
 * FSDP_ERR_FORMAT with the library's own message. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_load(const void *model, size_t bytes,
                                                    fsdp_sentencepiece **out);
void fsdp_sentencepiece_destroy(fsdp_sentencepiece *sp); /* accepts NULL */

int32_t fsdp_sentencepiece_size(const fsdp_sentencepiece *sp);
/* -1 if the model has no such piece. */
int32_t fsdp_sentencepiece_bos_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_pad_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_eos_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_unk_id(const fsdp_sentencepiece *sp);
/* NUL-terminated, valid as long as sp; 0 <= id < size, here and below. */
const char *fsdp_sentencepiece_piece(const fsdp_sentencepiece *sp, int32_t id);
/* Logarithm of the piece's probability. */
float fsdp_sentencepiece_score(const fsdp_sentencepiece *sp, int32_t id);
/* Whether the piece is found in text: it is neither unknown, control, unused nor a byte. */
bool fsdp_sentencepiece_is_normal(const fsdp_sentencepiece *sp, int32_t id);

/* The byte of a byte piece, which encodes one byte of text that no other piece covers (byte
 * fallback); else -1. */
int fsdp_sentencepiece_byte(const fsdp_sentencepiece *sp, int32_t id);

/* Call `each` for the pieces of well-formed UTF-8 in order. `piece` [length] is normalised text
 * (spaces are U+2581), so the concatenation of all pieces is the normalised text. Stops at the
 * first failure and returns it. Thread-safe. */
typedef fsdp_status fsdp_sentencepiece_fn(void *arg, const char *piece, size_t length, int32_t id);
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_encode(const fsdp_sentencepiece *sp,
                                                      const char *text, size_t length,
                                                      fsdp_sentencepiece_fn *each, void *arg);

#ifdef __cplusplus
}
#endif
