import { Injectable, Module } from '@nestjs/common';
import pg from 'pg';
import { Outbox, WaybillModule } from 'waybill/nestjs';

import config from './waybill.config.ts';

const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'] });

@Injectable()
export class Registration {
  constructor(private readonly outbox: Outbox) {}

  async register(email: string): Promise<string> {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      await client.query('INSERT INTO users (email) VALUES ($1)', [email]);
      const { id } = await this.outbox.enqueue(client, {
        topic: 'user.registered',
        payload: { email },
      });
      await client.query('COMMIT');
      return id;
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  }

  async onApplicationShutdown(): Promise<void> {
    await pool.end();
  }
}

@Module({
  imports: [WaybillModule.forRoot({ relay: config })],
  providers: [Registration],
})
export class AppModule {}
