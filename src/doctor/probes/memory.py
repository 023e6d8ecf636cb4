# Takes DOCTOR_BYTES of memory, and no more: where no limit holds, the host must live on.
import os

kept = [b"x" * (16 << 20) for _ in range(int(os.environ["DOCTOR_BYTES"]) >> 24)]
print("survived")
