"""Worker threads that share kernels: generated code that spins, then sleeps, on a counter.

A kernel is handed out by raising the generation; each thread computes its share and lowers the
count of shares not done. A worker that has waited for long sleeps on the generation (futex), and
whoever raises it wakes the sleepers.
"""

from string import Template

from tilewright.cpu_gpu_backends.codegen.target import CpuTarget

#: Most threads of a pool, the caller's included.
MAX_THREADS = 64
#: ``void dispatch(function, operands)``, where ``function(operands, thread, threads)`` computes a
#: share.
DISPATCH = "pool.dispatch"
#: Waiting turns of a worker before it sleeps, and of the caller before it yields: some tenths of
#: a millisecond, much longer than the serial part between two kernels.
_SPINS_BEFORE_SLEEP = 20_000
#: Number of the system call futex (asm/unistd.h) by the first part of the target triple.
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "armv7": 240}
#: What a waiting loop repeats: a call and its declaration; hint 1 of ARM is YIELD.
_SPIN_HINT = {
    "x86_64": ("llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()"),
    "aarch64": ("llvm.aarch64.hint(i32 1)", "llvm.aarch64.hint(i32)"),
    "armv7": ("llvm.arm.hint(i32 1)", "llvm.arm.hint(i32)"),
}
_WAIT_PRIVATE, _WAKE_PRIVATE, _EVERYBODY = 128, 129, 2**31 - 1

_TEXT = Template("""
@pool.threads = internal global i64 1
@pool.handles = internal global [$most x $long] zeroinitializer
@pool.generation = internal global i32 0, align 64
@pool.pending = internal global i64 0, align 64
@pool.sleepers = internal global i32 0, align 64
@pool.stopping = internal global i32 0, align 64
@pool.function = internal global ptr null
@pool.operands = internal global ptr null

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join($long, ptr)
declare i32 @sched_yield()
declare void @$declared
declare $long @syscall($long, ...)

; Raises the generation and wakes who sleeps on it.
define internal void @pool.announce() {
  %old = atomicrmw add ptr @pool.generation, i32 1 seq_cst
  %sleepers = load atomic i32, ptr @pool.sleepers seq_cst, align 4
  %some = icmp ne i32 %sleepers, 0
  br i1 %some, label %wake, label %done
wake:
  %woken = call $long ($long, ...) $wake_call
  br label %done
done:
  ret void
}

; Waits until the generation is no longer %seen, and returns it.
define internal i32 @pool.wait(i32 %seen) {
entry:
  br label %spin
spin:
  %turn = phi i32 [ 0, %entry ], [ %next, %again ], [ 0, %woken ]
  %now = load atomic i32, ptr @pool.generation acquire, align 4
  %new = icmp ne i32 %now, %seen
  br i1 %new, label %done, label %more
more:
  %next = add i32 %turn, 1
  %long = icmp sgt i32 %next, $spins
  br i1 %long, label %sleep, label %again
again:
  call void @$hint
  br label %spin
sleep:
  %before = atomicrmw add ptr @pool.sleepers, i32 1 seq_cst
  %slept = call $long ($long, ...) $sleep_call
  %after = atomicrmw sub ptr @pool.sleepers, i32 1 seq_cst
  br label %woken
woken:
  br label %spin
done:
  ret i32 %now
}

; A worker: its number within the pool is its operand. The pool starts at generation 0.
define internal ptr @pool.work(ptr %number) {
entry:
  %thread.word = ptrtoint ptr %number to $long
  %thread = $widen
  br label %loop
loop:
  %seen = phi i32 [ 0, %entry ], [ %now, %share ]
  %now = call i32 @pool.wait(i32 %seen)
  %stopping = load atomic i32, ptr @pool.stopping acquire, align 4
  %stop = icmp ne i32 %stopping, 0
  br i1 %stop, label %done, label %share
share:
  %function = load ptr, ptr @pool.function
  %operands = load ptr, ptr @pool.operands
  %threads = load i64, ptr @pool.threads
  call void %function(ptr %operands, i64 %thread, i64 %threads)
  %left = atomicrmw sub ptr @pool.pending, i64 1 release
  br label %loop
done:
  ret ptr null
}

; Lets all threads compute their shares, the caller the first one, and returns when all are done.
define hidden void @pool.dispatch(ptr %function, ptr %operands) {
entry:
  %threads = load i64, ptr @pool.threads
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %shared
single:
  call void %function(ptr %operands, i64 0, i64 1)
  ret void
shared:
  store ptr %function, ptr @pool.function
  store ptr %operands, ptr @pool.operands
  %others = sub i64 %threads, 1
  store atomic i64 %others, ptr @pool.pending release, align 8
  call void @pool.announce()
  call void %function(ptr %operands, i64 0, i64 %threads)
  br label %wait
wait:
  %turn = phi i32 [ 0, %shared ], [ %next, %turned ]
  %left = load atomic i64, ptr @pool.pending acquire, align 8
  %done = icmp eq i64 %left, 0
  br i1 %done, label %finish, label %more
more:
  %next = add i32 %turn, 1
  %long = icmp sgt i32 %next, $spins
  br i1 %long, label %yield, label %pause
pause:
  call void @$hint
  br label %turned
yield:
  %yielded = call i32 @sched_yield()
  br label %turned
turned:
  br label %wait
finish:
  ret void
}

; Ends the workers.
define void @${prefix}_stop() {
entry:
  store atomic i32 1, ptr @pool.stopping release, align 4
  call void @pool.announce()
  %threads = load i64, ptr @pool.threads
  br label %next
next:
  %thread = phi i64 [ 1, %entry ], [ %following, %join ]
  %more = icmp slt i64 %thread, %threads
  br i1 %more, label %join, label %done
join:
  %place = getelementptr [$most x $long], ptr @pool.handles, i64 0, i64 %thread
  %handle = load $long, ptr %place
  %joined = call i32 @pthread_join($long %handle, ptr null)
  %following = add i64 %thread, 1
  br label %next
done:
  store i64 1, ptr @pool.threads
  store atomic i32 0, ptr @pool.stopping release, align 4
  store atomic i32 0, ptr @pool.generation release, align 4
  ret void
}

; Replaces the workers by so many threads, the caller's included.
define i32 @${prefix}_start(i32 %count) {
entry:
  call void @${prefix}_stop()
  %threads = sext i32 %count to i64
  %few = icmp sle i64 %threads, $most
  %some = icmp sge i64 %threads, 1
  %legal = and i1 %few, %some
  br i1 %legal, label %next, label %failed
next:
  %thread = phi i64 [ 1, %entry ], [ %following, %created ]
  store i64 %thread, ptr @pool.threads
  %more = icmp slt i64 %thread, %threads
  br i1 %more, label %create, label %done
create:
  %place = getelementptr [$most x $long], ptr @pool.handles, i64 0, i64 %thread
  %number = inttoptr i64 %thread to ptr
  %status = call i32 @pthread_create(ptr %place, ptr null, ptr @pool.work, ptr %number)
  %created.well = icmp eq i32 %status, 0
  br i1 %created.well, label %created, label %failed
created:
  %following = add i64 %thread, 1
  br label %next
failed:
  ret i32 1
done:
  ret i32 0
}
""")


def start_name(prefix: str) -> str:
    """Return the name of ``int start(int threads)``, which yields 0 on success."""
    return f"{prefix}_start"


def stop_name(prefix: str) -> str:
    """Return the name of ``void stop(void)``."""
    return f"{prefix}_stop"


def spin_pool(target: CpuTarget, prefix: str) -> str:
    """Return the pool as a module in LLVM's assembly; `prefix` begins its functions' names."""
    family = target.triple.split("-")[0]
    narrow = family == "armv7"
    call, declaration = _SPIN_HINT[family]
    long = "i32" if narrow else "i64"
    futex = f"@syscall({long} {_FUTEX_CALL[family]}, ptr @pool.generation"
    text = _TEXT.substitute(
        prefix=prefix,
        most=MAX_THREADS,
        long=long,
        widen="zext i32 %thread.word to i64" if narrow else "add i64 %thread.word, 0",
        sleep_call=f"{futex}, i32 {_WAIT_PRIVATE}, i32 %seen, ptr null)",
        wake_call=f"{futex}, i32 {_WAKE_PRIVATE}, i32 {_EVERYBODY})",
        spins=_SPINS_BEFORE_SLEEP,
        hint=call,
        declared=declaration,
    )
    return f'target triple = "{target.triple}"\n{text}'
