"""Hashing and split block loops: arrays in, arrays out, no I/O and no Parquet.

Decisions

numba compiles the loops; there is no extension in C or Rust.
    numba costs 208 MB of the bare install (llvmlite 173, numba 35) and 0.4 s of a process that compiles. It also costs
    some 800 lines here: they decide when loops are compiled, keep them, and run them by numpy before (`loops`,
    `compiler`, `linked`, `threads`, `block`, half of `hashes`). An extension would cost wheels for each platform, a
    compiler for each contributor, a second language for each reader, and hand-written vectors for each set of
    instructions. Plain C is also slower. On one core of a busy machine (`python benchmarks/kernels.py --c`, a Xeon with
    AVX-512, gcc 12) numba's loops hash int64 2.0 to 2.5 times as fast as `cc -O3`, which a wheel could ship, and 1.3 to
    1.7 times as fast as `-march=native`. They insert 2.2 to 3.7 times as fast. Loops over many files that release the
    interpreter's lock are Python here too. A short process loads neither numba nor an extension. Look again when numba
    follows a new Python only after months, or when a loop needs what numba cannot compile.

The block kernel is written as vectors.
    numba disables LLVM's vectoriser for straight-line code, so the eight words of a block came out as scalar code.
    `intrinsics` builds the block as `<8 x i32>` through numba's public `intrinsic`. To insert is about 2.5 times
    faster, and uint32 products cannot be widened to uint64 by mistake.

Kernels over fixed-width values prefetch.
    To hash eight bytes takes a nanosecond, and the processor's own prefetching is slower than that here. The kernels
    request the next step's cache lines themselves: hashing from memory is twice as fast.

A process runs compiled code without numba, once another has compiled it.
    numba takes 0.4 s to load a first kernel from its cache, nearly all of it for what only compiling needs. So when a
    simple loop is compiled, its object code is kept too: one function over arrays and numbers that names no symbol.
    llvmlite links it in 0.05 s (`linked`). `add` of 4,000,000 rows as a whole process takes 0.54 of the time by that.
    The folder, its trust and the sources' checksum are those of numba's cache; the name has LLVM's version and the
    processor. Anything else, such as a NUMBA_ variable or a loop that returns something, goes through numba.

numpy hashes the first 700,000 values or so, and the first three million where no code is kept.
    To load numba takes longer than all other work of `add` on a small file. Each loop over values has a twin in numpy
    (`hashes`, `block`), 5 to 30 times slower. `loops` alone decides: numba where it is loaded already, or once
    a process has lost 0.2 s without it, or will; code that is kept after 0.05 s. Tests compare the twins bit for bit,
    and whole files of every form byte for byte.

One process compiles at a time, under a file lock in the cache's folder.
    Each kernel has one signature and is compiled on its first call. Many processes that write one numba cache at once
    can crash (numba #4807). If another process keeps the lock for 15 seconds, or if others may write to the folder, a
    process compiles for itself and logs that (`compiler`).
"""
