/* Implements sentencepiece.h for builds without libsentencepiece. Loading a model fails, so no
 * other function is ever called. */
#include "src/text/sentencepiece.h"

#include "src/base/assert.h"

#define NO_MODEL() fsdp_assert_failed("there is a SentencePiece model", __FILE__, __LINE__)

fsdp_status fsdp_sentencepiece_load(const void *model, size_t bytes, fsdp_sentencepiece **out)
{
    (void)model;
    (void)bytes;
    (void)out;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "a SentencePiece model: this build has no libsentencepiece");
}

void fsdp_sentencepiece_destroy(fsdp_sentencepiece *sp)
{
    if (sp)
        NO_MODEL();
}

int32_t fsdp_sentencepiece_size(const fsdp_sentencepiece *sp)
{
    (void)sp;
    NO_MODEL();
}

int32_t fsdp_sentencepiece_bos_id(const fsdp_sentencepiece *sp)
{
    (void)sp;
    NO_MODEL();
}

int32_t fsdp_sentencepiece_pad_id(const fsdp_sentencepiece *sp)
{
    (void)sp;
    NO_MODEL();
}

int32_t fsdp_sentencepiece_eos_id(const fsdp_sentencepiece *sp)
{
    (void)sp;
    NO_MODEL();
}

int32_t fsdp_sentencepiece_unk_id(const fsdp_sentencepiece *sp)
{
    (void)sp;
    NO_MODEL();
}

const char *fsdp_sentencepiece_piece(const fsdp_sentencepiece *sp, int32_t id)
{
    (void)sp;
    (void)id;
    NO_MODEL();
}

float fsdp_sentencepiece_score(const fsdp_sentencepiece *sp, int32_t id)
{
    (void)sp;
    (void)id;
    NO_MODEL();
}

bool fsdp_sentencepiece_is_normal(const fsdp_sentencepiece *sp, int32_t id)
{
    (void)sp;
    (void)id;
    NO_MODEL();
}

int fsdp_sentencepiece_byte(const fsdp_sentencepiece *sp, int32_t id)
{
    (void)sp;
    (void)id;
    NO_MODEL();
}

fsdp_status fsdp_sentencepiece_encode(const fsdp_sentencepiece *sp, const char *text, size_t length,
                                      fsdp_sentencepiece_fn *each, void *arg)
{
    (void)sp;
    (void)text;
    (void)length;
    (void)each;
    (void)arg;
    NO_MODEL();
}
