tokenizer_family.o: src/text/tokenizer_family.c src/base/alloc.h \
 include/fsdp/base.h src/base/io.h src/base/str.h src/text/bpe.h \
 src/text/token_model.h include/fsdp/text.h src/text/vocabulary.h \
 src/text/sentencepiece_model.h src/text/tiktoken.h \
 src/text/tokenizer_internal.h src/base/json.h src/text/added_tokens.h \
 src/text/char_class.h src/text/normalizer.h src/text/aligned_text.h \
 src/text/utf8.h src/text/post_processor.h src/text/token_sequence.h \
 src/text/pre_tokenizer.h src/text/token_decoder.h src/text/token_texts.h \
 src/text/word_splitter.h src/text/wordpiece.h
src/base/alloc.h:
include/fsdp/base.h:
src/base/io.h:
src/base/str.h:
src/text/bpe.h:
src/text/token_model.h:
include/fsdp/text.h:
src/text/vocabulary.h:
src/text/sentencepiece_model.h:
src/text/tiktoken.h:
src/text/tokenizer_internal.h:
src/base/json.h:
src/text/added_tokens.h:
src/text/char_class.h:
src/text/normalizer.h:
src/text/aligned_text.h:
src/text/utf8.h:
src/text/post_processor.h:
src/text/token_sequence.h:
src/text/pre_tokenizer.h:
src/text/token_decoder.h:
src/text/token_texts.h:
src/text/word_splitter.h:
src/text/wordpiece.h:
