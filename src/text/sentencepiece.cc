/* Implements sentencepiece.h with libsentencepiece. This file catches every exception, and converts
 * each status of the library into an fsdp_status. */
#include "src/text/sentencepiece.h"

#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string_view>

#include <sentencepiece_processor.h>

extern "C" {
#include "src/base/alloc.h"
}

/* This file declares SetMinLogLevel() because the installed header of the library does not. The
 * declaration is weak because some builds of the library do not have the function. */
namespace sentencepiece
{
namespace logging
{
__attribute__((weak)) void SetMinLogLevel(int level);
}
} // namespace sentencepiece

struct fsdp_sentencepiece {
    sentencepiece::SentencePieceProcessor processor;
};

/* Call `body` and return its status. If it throws an exception, return an error instead. */
template <typename Body> static fsdp_status guarded(const char *what, Body body) noexcept
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fsdp_error_nomem();
    } catch (const std::exception &e) {
        return fsdp_error(FSDP_ERR_FORMAT, "sentencepiece: %s: %s", what, e.what());
    } catch (...) {
        return fsdp_error(FSDP_ERR_FORMAT, "sentencepiece: %s failed", what);
    }
}

fsdp_status fsdp_sentencepiece_load(const void *model, size_t bytes, fsdp_sentencepiece **out)
{
    return guarded("loading", [&]() -> fsdp_status {
        /* Without this, the library would also print each error to stderr. */
        const int fatal_only = 3;
        if (sentencepiece::logging::SetMinLogLevel)
            sentencepiece::logging::SetMinLogLevel(fatal_only);
        auto sp = std::make_unique<fsdp_sentencepiece>();
        auto status = sp->processor.LoadFromSerializedProto(
            std::string_view(static_cast<const char *>(model), bytes));
        if (!status.ok())
            return fsdp_error(FSDP_ERR_FORMAT, "not a SentencePiece model (%s)",
                              status.error_message());
        *out = sp.release();
        return FSDP_OK;
    });
}

void fsdp_sentencepiece_destroy(fsdp_sentencepiece *sp)
{
    delete sp;
}

int32_t fsdp_sentencepiece_size(const fsdp_sentencepiece *sp)
{
    return sp->processor.GetPieceSize();
}

int32_t fsdp_sentencepiece_bos_id(const fsdp_sentencepiece *sp)
{
    return sp->processor.bos_id();
}

int32_t fsdp_sentencepiece_pad_id(const fsdp_sentencepiece *sp)
{
    return sp->processor.pad_id();
}

int32_t fsdp_sentencepiece_eos_id(const fsdp_sentencepiece *sp)
{
    return sp->processor.eos_id();
}

int32_t fsdp_sentencepiece_unk_id(const fsdp_sentencepiece *sp)
{
    return sp->processor.unk_id();
}

const char *fsdp_sentencepiece_piece(const fsdp_sentencepiece *sp, int32_t id)
{
    return sp->processor.IdToPiece(id).c_str();
}

float fsdp_sentencepiece_score(const fsdp_sentencepiece *sp, int32_t id)
{
    return sp->processor.GetScore(id);
}

bool fsdp_sentencepiece_is_normal(const fsdp_sentencepiece *sp, int32_t id)
{
    const auto &p = sp->processor;
    return !p.IsUnknown(id) && !p.IsControl(id) && !p.IsUnused(id) && !p.IsByte(id);
}

int fsdp_sentencepiece_byte(const fsdp_sentencepiece *sp, int32_t id)
{
    if (!sp->processor.IsByte(id))
        return -1;
    return static_cast<int>(
        std::strtol(sp->processor.IdToPiece(id).c_str() + 3, nullptr, 16)); /* <0x0A> */
}

fsdp_status fsdp_sentencepiece_encode(const fsdp_sentencepiece *sp, const char *text, size_t length,
                                      fsdp_sentencepiece_fn *each, void *arg)
{
    return guarded("encoding", [&]() -> fsdp_status {
        sentencepiece::ImmutableSentencePieceText encoded;
        const auto status =
            sp->processor.Encode(std::string_view(text, length), encoded.mutable_proto());
        if (!status.ok())
            return fsdp_error(FSDP_ERR_FORMAT, "sentencepiece: %s", status.error_message());
        for (size_t i = 0; i < encoded.pieces_size(); i++) {
            const auto piece = encoded.pieces(static_cast<int>(i));
            FSDP_TRY(each(arg, piece.piece().data(), piece.piece().size(),
                          static_cast<int32_t>(piece.id())));
        }
        return FSDP_OK;
    });
}
