// The time that is shown: it runs at a speed, stops or begins again at the end, and tells who listens.

class Clock {
  constructor([start, stop], speed) {
    Object.assign(this, { start, stop, speed, time: start, isPlaying: false, isLooping: true, listeners: [] });
  }

  seek(time) {
    this.time = Math.min(Math.max(time, this.start), this.stop);
    this.tell();
  }

  play() {
    if (this.isPlaying || this.stop === this.start) return;
    if (this.time >= this.stop) this.time = this.start;
    this.isPlaying = true;
    let before = performance.now();
    const step = (now) => {
      if (!this.isPlaying) return;
      const next = this.time + (Math.max(now - before, 0) / 1000) * this.speed;
      before = now;
      if (next < this.stop) this.time = next;
      else if (this.isLooping) this.time = this.start + ((next - this.start) % (this.stop - this.start));
      else [this.time, this.isPlaying] = [this.stop, false];
      this.tell();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
    this.tell();
  }

  pause() {
    this.isPlaying = false;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener(this.time);
  }
}
